"""Prints the message types of the installed backend as JSON: {"structs": {NAME: [[FIELD, TYPE, DEFAULT], ...]}, "methods": [...]}.

Types are written in the words of our own table: str, int, float, bool, bin, map, list[T], T|nil, enum(a,b), or the name of a
struct. DEFAULT is {"required": true} or {"value": ...}.
"""

import json
import types
import typing

import msgspec
from sie_server import ipc_types

WORDS = {str: "str", int: "int", float: "float", bool: "bool", bytes: "bin", dict: "map"}


def word(kind):
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return f"list[{word(args[0])}]"
    if origin is dict:
        return "map"
    if origin is typing.Literal:
        return f"enum({','.join(args)})"
    if origin in (typing.Union, types.UnionType):
        inner = [word(arg) for arg in args if arg is not type(None)]
        return "|".join(inner + ["nil"] * (len(inner) < len(args)))
    return WORDS.get(kind) or kind.__name__


def default(field):
    if field.required:
        return {"required": True}
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return {"value": value.decode() if isinstance(value, bytes) else value}


structs = {
    name: [[field.encode_name, word(field.type), default(field)] for field in msgspec.structs.fields(kind)]
    for name, kind in vars(ipc_types).items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
}
methods = [value for name, value in vars(ipc_types).items() if name.startswith("METHOD_")]
print(json.dumps({"version": ipc_types.IPC_VERSION, "structs": structs, "methods": methods}))
