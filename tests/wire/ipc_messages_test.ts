/**
 * Readers and writers against the table of messages, which is itself compared with the peer: what the table says of a field, the
 * code must do.
 */
import assert from "node:assert/strict";
import { ALL_STRUCTS } from "../../src/wire/ipc/all_structs.ts";
import { bodyFault } from "../../src/wire/ipc/body_check.ts";
import type { IpcMethod } from "../../src/wire/ipc/methods.ts";
import * as S from "../../src/wire/ipc/schema.ts";
import type { Struct } from "../../src/wire/ipc/struct.ts";
import { MsgpackError } from "../../src/wire/msgpack/errors.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { encodeNotation } from "../harness/notation.ts";
import { ANSWER_FORMS } from "../ipc/wire_forms.ts";

type Plain = Record<string, unknown>;

/** Answers, each with the reader that the client uses for it. */
const ANSWERS: readonly (readonly [string, Struct])[] = [
  ["Ping", S.PingResponse],
  ["EnsureModelReady", S.EnsureModelReadyResponse],
  ["WorkerCapabilities", S.WorkerCapabilitiesResponse],
  ["SignalGenerateCancel", S.SignalGenerateCancelResponse],
  ["ApplyModelConfig", S.ApplyModelConfigResponse],
  ["ReplaceModelConfigs", S.ReplaceModelConfigsResponse],
  ["SetPinnedModels", S.SetPinnedModelsResponse],
  ["Drain", S.DrainResponse],
  ["RunBatch", S.BatchOutcomeStruct],
  ["ProcessGenerate", S.GenerateEventFrame],
];

function structNamed(name: string): Struct | undefined {
  return ALL_STRUCTS.find((each) => each.name === name);
}

/** A value of a type; nested messages whole, or with their required fields only. */
function sample(type: string, whole: boolean): unknown {
  const bare = type.replace(/\|nil$/, "");
  const list = /^list\[(.*)\]$/.exec(bare);
  if (list?.[1] !== undefined) return [sample(list[1], whole)];
  const values = /^enum\((.*)\)$/.exec(bare);
  if (values?.[1] !== undefined) return values[1].split(",")[0];
  const nested = structNamed(bare);
  if (nested !== undefined) return message(nested, whole);
  const plain: Record<string, unknown> = {
    str: "text",
    int: 7,
    float: { $f64: 1.5 },
    bool: true,
    bin: { $bin: "00ff" },
    map: {},
  };
  assert.ok(bare in plain, `no sample of ${bare}`);
  return plain[bare];
}

function message(of: Struct, whole: boolean): Plain {
  const fields = of.names.filter((name) => whole || of.fields[name]?.fallback === undefined);
  return Object.fromEntries(fields.map((name) => [name, sample(of.fields[name]?.type ?? "", whole)]));
}

/** Values that no field of the type takes. */
function misfits(type: string): unknown[] {
  const nil = type.endsWith("|nil") ? [] : [null];
  const bare = type.replace(/\|nil$/, "");
  if (bare.startsWith("list[")) {
    const inner = bare.slice(5, -1);
    return [...nil, 1, "text", {}, ...misfits(inner).map((each) => [each])];
  }
  if (bare.startsWith("enum(")) return [...nil, 1, "no such value"];
  if (structNamed(bare) !== undefined) return [...nil, 1, "text"];
  const wrong: Record<string, unknown[]> = {
    str: [1, true, [], {}],
    int: [true, "1", { $f64: 3 }, [], -1],
    float: [true, "1", []],
    bool: [0, 1, "true"],
    bin: [1, true, {}],
    map: [1, "text", []],
  };
  return [...nil, ...(wrong[bare] ?? [])];
}

/** Where more is known than the type: unknown event kinds are for the lanes (5.2), nil is a dtype (7.2), indices are signed (4.10). */
const LENIENT = new Set([
  "GenerateEvent.kind 'no such value'",
  "MultivectorOutput.dtype null",
  "SparseOutput.indices [-1]",
]);

function read(method: IpcMethod<never, unknown>, body: unknown): void {
  method.readBody(new MsgpackReader(encodeNotation(body)));
}

/** Every way to spoil one field somewhere in a message, with the name of the place. */
function* spoiled(of: Struct, body: Plain): Iterable<[string, Plain]> {
  for (const name of of.names) {
    const type = of.fields[name]?.type ?? "";
    const where = `${of.name}.${name}`;
    for (const value of misfits(type)) yield [`${where} ${printed(value)}`, { ...body, [name]: value }];
    if (of.fields[name]?.fallback === undefined) {
      const { [name]: _, ...rest } = body;
      yield [`${where} missing`, rest];
    }
    const nested = nestedIn(type);
    if (nested === undefined) continue;
    for (const [place, inner] of spoiled(nested, message(nested, true))) {
      yield [place, { ...body, [name]: type.startsWith("list[") ? [inner] : inner }];
    }
  }
}

/** Every way to write one field somewhere in a message twice, with the name of the place. */
function* doubled(of: Struct, body: Plain): Iterable<[string, Plain]> {
  for (const name of of.names) {
    const type = of.fields[name]?.type ?? "";
    yield [`${of.name}.${name}`, { $map: [...Object.entries(body), [name, body[name]]] }];
    const nested = nestedIn(type);
    if (nested === undefined) continue;
    for (const [place, inner] of doubled(nested, message(nested, true))) {
      yield [place, { ...body, [name]: type.startsWith("list[") ? [inner] : inner }];
    }
  }
}

function nestedIn(type: string): Struct | undefined {
  return structNamed(type.replace(/\|nil$/, "").replace(/^list\[(.*)\]$/, "$1"));
}

function printed(value: unknown): string {
  return typeof value === "string" ? `'${value}'` : JSON.stringify(value);
}

for (const [name, of] of ANSWERS) {
  const method = ANSWER_FORMS[name]?.method;
  assert.ok(method !== undefined);

  Deno.test(`${name}: a full answer and one with the required fields alone are read, unknown keys are not looked at`, () => {
    read(method, message(of, true));
    read(method, message(of, false));
    read(method, { ...message(of, true), from_the_future: [{ $bin: "00" }] });
  });

  Deno.test(`${name}: nil is read where the table allows it`, () => {
    for (const field of of.names) {
      if (of.fields[field]?.fallback === null) read(method, { ...message(of, true), [field]: null });
    }
  });

  Deno.test(`${name}: every misfit anywhere in it makes the answer undecodable`, () => {
    let spoils = 0;
    for (const [place, body] of spoiled(of, message(of, true))) {
      if (LENIENT.has(place)) continue;
      spoils++;
      assert.throws(() => read(method, body), MsgpackError, place);
    }
    assert.ok(spoils > 0 || of.names.length === 0);
  });

  Deno.test(`${name}: a known key that comes twice anywhere in it makes the answer undecodable`, () => {
    for (const [place, body] of doubled(of, message(of, true))) {
      assert.throws(() => read(method, body), MsgpackError, place);
    }
  });
}

Deno.test("the judgement of requests follows the table too", () => {
  const checkable = ALL_STRUCTS.filter((of) => of.name.endsWith("Request") || of.name.endsWith("Item"));
  const fault = (of: Struct, body: unknown) => bodyFault(new MsgpackReader(encodeNotation(body)), of);
  for (const of of checkable) {
    assert.equal(fault(of, message(of, true)), undefined, of.name);
    assert.equal(fault(of, message(of, false)), undefined, of.name);
    for (const [place, body] of spoiled(of, message(of, true))) {
      // Python has no unsigned integers.
      if (place.endsWith(" -1") || place.endsWith("[-1]")) continue;
      if (place.endsWith("[[-1]]")) continue;
      assert.notEqual(fault(of, body), undefined, place);
    }
  }
});
