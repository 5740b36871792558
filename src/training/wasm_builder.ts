/**
 * A very small assembler for WebAssembly: enough for arithmetic loops over one imported memory. The kernels are written in
 * it, so that the repository holds their source and not bytes that somebody made elsewhere.
 */

/** Encoded instructions. An expression leaves its value on the stack, a statement leaves nothing. */
export type Code = readonly number[];
/** Index of a local variable or parameter. */
export type Local = number;
/** Types of values. */
export type ValueType = "i32" | "f32" | "f64" | "v128";

const TYPE_CODE: Readonly<Record<ValueType, number>> = { i32: 0x7f, f32: 0x7d, f64: 0x7c, v128: 0x7b };
const NO_RESULT = 0x40;

/** One exported function: parameters first, then local variables, which start as zero. */
export class WasmFunction {
  readonly name: string;
  readonly result: ValueType | undefined;
  readonly #parameters: ValueType[] = [];
  readonly #locals: ValueType[] = [];
  #body: Code = [];

  constructor(name: string, result?: ValueType) {
    this.name = name;
    this.result = result;
  }

  /** Adds a parameter. */
  parameter(type: ValueType): Local {
    return this.#parameters.push(type) - 1;
  }
  /** Adds a local variable; all parameters must have been added. */
  local(type: ValueType): Local {
    return this.#parameters.length + this.#locals.push(type) - 1;
  }
  /** Sets the statements; the last one leaves the result, if there is one. */
  body(...statements: Code[]): this {
    this.#body = statements.flat();
    return this;
  }

  /** The function's type, as an entry of the type section. */
  signature(): Code {
    const results = this.result === undefined ? [] : [TYPE_CODE[this.result]];
    return [
      0x60,
      ...vector(this.#parameters.map((type) => [TYPE_CODE[type]])),
      ...vector(results.map((code) => [code])),
    ];
  }
  /** The function's code, as an entry of the code section. */
  code(): Code {
    const locals = vector(this.#locals.map((type) => [1, TYPE_CODE[type]]));
    return sized([...locals, ...this.#body, 0x0b]);
  }
}

/** The bytes of a module that imports `env.memory` and exports the functions. */
export function wasmModule(functions: readonly WasmFunction[]): Uint8Array<ArrayBuffer> {
  const text = (value: string) => vector([...new TextEncoder().encode(value)].map((byte) => [byte]));
  const section = (id: number, entries: readonly Code[]) => [id, ...sized(vector(entries))];
  const memory = [...text("env"), ...text("memory"), 0x02, 0x00, ...unsigned(1)];
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    ...section(1, functions.map((each) => each.signature())),
    ...section(2, [memory]),
    ...section(3, functions.map((_, index) => unsigned(index))),
    ...section(7, functions.map((each, index) => [...text(each.name), 0x00, ...unsigned(index)])),
    ...section(10, functions.map((each) => each.code())),
  ]);
}

/** Value of a local. */
export const get = (local: Local): Code => [0x20, ...unsigned(local)];
/** Assigns a local. */
export const set = (local: Local, value: Code): Code => [...value, 0x21, ...unsigned(local)];

/** Repeats `body` while the unsigned `value` is below `end`; the body must move it on. */
export function whileBelow(value: Code, end: Code, ...body: Code[]): Code {
  const leave = [...value, ...end, 0x4f, 0x0d, ...unsigned(1)];
  return [0x02, NO_RESULT, 0x03, NO_RESULT, ...leave, ...body.flat(), 0x0c, ...unsigned(0), 0x0b, 0x0b];
}

/** Runs `body` when the condition, an i32, is not zero. */
export const when = (condition: Code, ...body: Code[]): Code => [...condition, 0x04, NO_RESULT, ...body.flat(), 0x0b];

const binary = (opcode: Code) => (left: Code, right: Code): Code => [...left, ...right, ...opcode];
const unary = (opcode: Code) => (value: Code): Code => [...value, ...opcode];
/** Memory operand: natural alignment is not promised, offsets are bytes. */
const at = (offset: number): Code => [0x00, ...unsigned(offset)];
const simd = (opcode: number): Code => [0xfd, ...unsigned(opcode)];

/** Instructions on 32-bit integers. */
export const i32 = {
  const: (value: number): Code => [0x41, ...signed(value)],
  add: binary([0x6a]),
  and: binary([0x71]),
} as const;

/** Instructions on single floats. */
export const f32 = {
  load: (address: Code, offset = 0): Code => [...address, 0x2a, ...at(offset)],
  store: (address: Code, value: Code): Code => [...address, ...value, 0x38, ...at(0)],
  const: (value: number): Code => [0x43, ...new Uint8Array(Float32Array.of(value).buffer)],
  add: binary([0x92]),
  sub: binary([0x93]),
  mul: binary([0x94]),
  /** NaN when either is NaN. */
  max: binary([0x97]),
  /** An i32: 1 when they differ or either is NaN. */
  ne: binary([0x5c]),
  fromF64: unary([0xb6]),
} as const;

/** Instructions on doubles. */
export const f64 = {
  add: binary([0xa0]),
  sub: binary([0xa1]),
  mul: binary([0xa2]),
  fromF32: unary([0xbb]),
} as const;

/** Instructions on four floats at once. */
export const f32x4 = {
  load: (address: Code, offset = 0): Code => [...address, ...simd(0x00), ...at(offset)],
  store: (address: Code, value: Code): Code => [...address, ...value, ...simd(0x0b), ...at(0)],
  zero: [...simd(0x0c), ...new Array<number>(16).fill(0)] as Code,
  splat: unary(simd(0x13)),
  lane: (value: Code, lane: number): Code => [...value, ...simd(0x1f), lane],
  add: binary(simd(0xe4)),
  sub: binary(simd(0xe5)),
  mul: binary(simd(0xe6)),
} as const;

/** Instructions on two doubles at once. */
export const f64x2 = {
  /** Two floats from memory, widened. */
  loadFloats: (address: Code, offset = 0): Code => [...address, ...simd(0x5d), ...at(offset), ...simd(0x5f)],
  lane: (value: Code, lane: number): Code => [...value, ...simd(0x21), lane],
  add: binary(simd(0xf0)),
  mul: binary(simd(0xf2)),
} as const;

function vector(entries: readonly Code[]): Code {
  return [...unsigned(entries.length), ...entries.flat()];
}

function sized(content: Code): Code {
  return [...unsigned(content.length), ...content];
}

/** Unsigned LEB128. */
function unsigned(value: number): number[] {
  const bytes: number[] = [];
  for (; value >= 0x80; value >>>= 7) bytes.push((value & 0x7f) | 0x80);
  return [...bytes, value];
}

/** Signed LEB128. */
function signed(value: number): number[] {
  const bytes: number[] = [];
  while (value < -64 || value > 63) {
    bytes.push((value & 0x7f) | 0x80);
    value >>= 7;
  }
  return [...bytes, value & 0x7f];
}
