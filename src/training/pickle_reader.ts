/**
 * Reads the pickle of a PyTorch state dict without running anything: a small stack machine that knows the opcodes of
 * protocol 2 that occur there and three global names, and refuses all others (online-training.md, section 3.4).
 */
import { TrainingError } from "./errors.ts";

/** A view of a storage: offset, sizes and strides in elements. */
export interface PickledTensor {
  readonly kind: "tensor";
  readonly storage: PickledStorage;
  readonly offset: number;
  readonly sizes: readonly number[];
  readonly strides: readonly number[];
}

/** A storage: the entry `data/<key>` of the archive holds `count` elements of the type. */
export interface PickledStorage {
  readonly kind: "storage";
  readonly elementType: ElementType;
  readonly key: string;
  readonly count: number;
}

/** Element types that are converted to float32. */
export type ElementType = "float32" | "float64" | "float16";

const STORAGE_TYPES: Readonly<Record<string, ElementType>> = {
  "torch FloatStorage": "float32",
  "torch DoubleStorage": "float64",
  "torch HalfStorage": "float16",
};
const ORDERED_DICT = "collections OrderedDict";
const REBUILD_TENSOR = "torch._utils _rebuild_tensor_v2";

interface Global {
  readonly kind: "global";
  readonly name: string;
}
interface Dict {
  readonly kind: "dict";
  readonly entries: Map<string, Value>;
}
interface Tuple {
  readonly kind: "tuple";
  readonly items: readonly Value[];
}
type Value = number | string | boolean | null | Global | Dict | Tuple | PickledStorage | PickledTensor | Mark;
/** A place on the stack that a later opcode counts from. */
interface Mark {
  readonly kind: "mark";
}

const MAX_STACK = 4096, MAX_MEMO = 4096;

/**
 * The state dict in `pickle`: names and tensors, in their order.
 *
 * @throws TrainingError `invalid_seed` naming the opcode or the global that is refused, or what is malformed.
 */
export function readStateDictPickle(pickle: Uint8Array): Map<string, PickledTensor> {
  const result = new PickleMachine(pickle).run();
  if (!isKind(result, "dict")) throw invalid("the pickle is not a dictionary");
  const tensors = new Map<string, PickledTensor>();
  for (const [name, value] of result.entries) {
    if (!isKind(value, "tensor")) throw invalid(`"${name}" is not a tensor`);
    tensors.set(name, value);
  }
  return tensors;
}

class PickleMachine {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #stack: Value[] = [];
  readonly #memo = new Map<number, Value>();
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  run(): Value {
    for (;;) {
      const opcode = this.#byte();
      if (opcode === 0x2e) return this.#pop(); // STOP
      this.#execute(opcode);
      if (this.#stack.length > MAX_STACK) throw invalid(`the pickle needs more than ${MAX_STACK} stack places`);
    }
  }

  #execute(opcode: number): void {
    const stack = this.#stack;
    switch (opcode) {
      case 0x80: { // PROTO
        const protocol = this.#byte();
        if (protocol !== 2) throw invalid(`pickle protocol ${protocol} is not 2`);
        return;
      }
      case 0x28: // MARK
        stack.push({ kind: "mark" });
        return;
      case 0x4e: // NONE
        stack.push(null);
        return;
      case 0x88: // NEWTRUE
      case 0x89: // NEWFALSE
        stack.push(opcode === 0x88);
        return;
      case 0x4b: // BININT1
        stack.push(this.#byte());
        return;
      case 0x4d: // BININT2
        stack.push(this.#view.getUint16(this.#skip(2), true));
        return;
      case 0x4a: // BININT
        stack.push(this.#view.getInt32(this.#skip(4), true));
        return;
      case 0x58: // BINUNICODE
        stack.push(this.#text(this.#view.getUint32(this.#skip(4), true)));
        return;
      case 0x63: // GLOBAL
        stack.push(global(`${this.#line()} ${this.#line()}`));
        return;
      case 0x71: // BINPUT
        this.#remember(this.#byte());
        return;
      case 0x72: // LONG_BINPUT
        this.#remember(this.#view.getUint32(this.#skip(4), true));
        return;
      case 0x68: // BINGET
        stack.push(this.#recall(this.#byte()));
        return;
      case 0x6a: // LONG_BINGET
        stack.push(this.#recall(this.#view.getUint32(this.#skip(4), true)));
        return;
      case 0x7d: // EMPTY_DICT
        stack.push({ kind: "dict", entries: new Map() });
        return;
      default:
        this.#executeCompound(opcode);
    }
  }

  #executeCompound(opcode: number): void {
    const stack = this.#stack;
    switch (opcode) {
      case 0x29: // EMPTY_TUPLE
        stack.push({ kind: "tuple", items: [] });
        return;
      case 0x85: // TUPLE1
      case 0x86: // TUPLE2
      case 0x87: // TUPLE3
        stack.push({ kind: "tuple", items: this.#popMany(opcode - 0x84) });
        return;
      case 0x74: // TUPLE
        stack.push({ kind: "tuple", items: this.#popToMark() });
        return;
      case 0x73: // SETITEM
        this.#setItems(this.#popMany(2));
        return;
      case 0x75: // SETITEMS
        this.#setItems(this.#popToMark());
        return;
      case 0x51: // BINPERSID
        stack.push(storage(this.#pop()));
        return;
      case 0x52: { // REDUCE
        const args = this.#pop();
        stack.push(reduce(this.#pop(), args));
        return;
      }
      case 0x62: { // BUILD: attributes of an OrderedDict (a module's state dict carries version metadata); not needed
        this.#pop();
        if (!isKind(this.#top(), "dict")) throw invalid("BUILD is allowed on a dictionary only");
        return;
      }
      default:
        throw invalid(`pickle opcode 0x${opcode.toString(16).padStart(2, "0")} is refused`);
    }
  }

  #setItems(items: readonly Value[]): void {
    const dict = this.#top();
    if (!isKind(dict, "dict") || items.length % 2 !== 0) {
      throw invalid("items are set on something else than a dictionary");
    }
    for (let i = 0; i < items.length; i += 2) {
      const key = items[i];
      if (typeof key !== "string") throw invalid("a dictionary key is not a string");
      dict.entries.set(key, items[i + 1] as Value);
    }
  }

  #byte(): number {
    return this.#bytes[this.#skip(1)] as number;
  }
  #skip(count: number): number {
    if (count > this.#bytes.length - this.#at) throw invalid("the pickle ends too early");
    this.#at += count;
    return this.#at - count;
  }
  #text(length: number): string {
    const start = this.#skip(length);
    return new TextDecoder().decode(this.#bytes.subarray(start, start + length));
  }
  #line(): string {
    const end = this.#bytes.indexOf(0x0a, this.#at);
    if (end < 0 || end - this.#at > 256) throw invalid("a global name does not end");
    const text = this.#text(end - this.#at);
    this.#at++;
    return text;
  }
  #remember(index: number): void {
    if (this.#memo.size >= MAX_MEMO) throw invalid(`the pickle remembers more than ${MAX_MEMO} values`);
    this.#memo.set(index, this.#top());
  }
  #recall(index: number): Value {
    const value = this.#memo.get(index);
    if (value === undefined) throw invalid(`the pickle recalls value ${index}, which it did not store`);
    return value;
  }
  #top(): Value {
    const value = this.#stack.at(-1);
    if (value === undefined) throw invalid("the pickle's stack is empty");
    return value;
  }
  #pop(): Value {
    const value = this.#top();
    this.#stack.pop();
    return value;
  }
  #popMany(count: number): Value[] {
    if (this.#stack.length < count) throw invalid("the pickle's stack is empty");
    return this.#stack.splice(this.#stack.length - count);
  }
  #popToMark(): Value[] {
    const at = this.#stack.findLastIndex((value) => isKind(value, "mark"));
    if (at < 0) throw invalid("the pickle has no mark");
    const items = this.#stack.splice(at);
    items.shift();
    return items;
  }
}

type Kinded = Exclude<Value, number | string | boolean | null>;

function isKind<K extends Kinded["kind"]>(value: Value, kind: K): value is Extract<Kinded, { kind: K }> {
  return typeof value === "object" && value !== null && value.kind === kind;
}

function global(name: string): Global {
  if (name !== ORDERED_DICT && name !== REBUILD_TENSOR && !Object.hasOwn(STORAGE_TYPES, name)) {
    throw invalid(`global name "${name}" is refused`);
  }
  return { kind: "global", name };
}

/** A storage from its persistent id: ('storage', type, key, device, number of elements). */
function storage(id: Value): PickledStorage {
  const [tag, type, key, , count] = isKind(id, "tuple") ? id.items : [];
  const elementType = type !== undefined && isKind(type, "global") ? STORAGE_TYPES[type.name] : undefined;
  if (tag !== "storage" || elementType === undefined || typeof key !== "string" || !isCount(count)) {
    throw invalid("a persistent id does not name a storage");
  }
  return { kind: "storage", elementType, key, count };
}

function reduce(callable: Value, args: Value): Value {
  if (!isKind(callable, "global") || !isKind(args, "tuple")) throw invalid("REDUCE without a function");
  if (callable.name === ORDERED_DICT && args.items.length === 0) return { kind: "dict", entries: new Map() };
  if (callable.name !== REBUILD_TENSOR) throw invalid(`"${callable.name}" cannot be called`);
  const [source, offset, sizes, strides] = args.items;
  if (source === undefined || !isKind(source, "storage") || !isCount(offset)) throw invalid("a tensor has no storage");
  const dims = counts(sizes), steps = counts(strides);
  if (dims.length !== steps.length) throw invalid("a tensor has unequal numbers of sizes and strides");
  return { kind: "tensor", storage: source, offset, sizes: dims, strides: steps };
}

function counts(value: Value | undefined): number[] {
  if (value === undefined || !isKind(value, "tuple") || value.items.length > 8) throw invalid("a shape is malformed");
  return value.items.map((item) => {
    if (!isCount(item)) throw invalid("a shape is malformed");
    return item;
  });
}

function isCount(value: Value | undefined): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0;
}

function invalid(reason: string): TrainingError {
  return new TrainingError("invalid_seed", reason);
}
