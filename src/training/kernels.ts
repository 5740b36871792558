/**
 * The loops of a training step, four floats at a time. Storage and products are float32, as in the reference; sums over
 * the hidden units, of squares and of squared errors run in double.
 *
 * All addresses are bytes in the memory that the kernels were made with.
 */
import { HIDDEN } from "./params.ts";
import {
  type Code,
  f32,
  f32x4,
  f64,
  f64x2,
  get,
  i32,
  type Local,
  set,
  wasmModule,
  when,
  whileBelow,
} from "./wasm_builder.ts";
import { WasmFunction } from "./wasm_builder.ts";

/** The exported functions. */
export interface Kernels {
  /**
   * Activations (rows × 64) and predictions (rows) of `rows` rows of `nBytes` bytes each; `w1` is the second layer's
   * weights followed by its bias.
   */
  forward(
    x: number,
    w0: number,
    b0: number,
    w1: number,
    hidden: number,
    out: number,
    rows: number,
    nBytes: number,
  ): void;
  /**
   * Adds the gradients of `rows` rows; `gw1` is the second layer's gradients followed by its bias's. `scale` is 2 ÷ the
   * rows of the whole batch.
   *
   * @returns the sum of squared errors of these rows.
   */
  backward(
    x: number,
    hidden: number,
    out: number,
    targets: number,
    w1: number,
    gw0: number,
    gb0: number,
    gw1: number,
    rows: number,
    nBytes: number,
    scale: number,
  ): number;
  /** Sum of the squares of `count` numbers, in double. */
  squares(values: number, bytes: number): number;
  /**
   * SGD with momentum and decay over `bytes` bytes of each array.
   *
   * @returns 0 when every new number is finite, NaN otherwise.
   */
  update(
    live: number,
    grads: number,
    velocity: number,
    nextLive: number,
    nextVelocity: number,
    bytes: number,
    clip: number,
    decay: number,
    momentum: number,
    rate: number,
  ): number;
  /** average = keep·average + take·values. */
  average(average: number, values: number, bytes: number, keep: number, take: number): void;
}

/** Makes the kernels for one memory. */
export function makeKernels(memory: WebAssembly.Memory): Kernels {
  compiled ??= new WebAssembly.Module(wasmModule([forward(), backward(), squares(), update(), average()]));
  return new WebAssembly.Instance(compiled, { env: { memory } }).exports as unknown as Kernels;
}

let compiled: WebAssembly.Module | undefined;

const HIDDEN_BYTES = 4 * HIDDEN;
const FLOAT = i32.const(4), VECTOR = i32.const(16), BLOCK = i32.const(64);

const move = (local: Local, by: Code): Code => set(local, i32.add(get(local), by));
/** `bytes` cut down to whole blocks of `block` bytes, a power of two. */
const whole = (bytes: Code, block: number): Code => i32.and(bytes, i32.const(-block));
const addTo = (local: Local, value: Code): Code => set(local, f32x4.add(get(local), value));
const sumOfLanes = (vector: Code): Code =>
  f32.add(
    f32.add(f32x4.lane(vector, 0), f32x4.lane(vector, 1)),
    f32.add(f32x4.lane(vector, 2), f32x4.lane(vector, 3)),
  );

function forward(): WasmFunction {
  const f = new WasmFunction("forward");
  const [x, w0, b0, w1, hidden, out, rows, nBytes] = parameters(f, 8);
  const i = f.local("i32"), weights = f.local("i32"), unit = f.local("i32"), row = f.local("i32");
  const blocks = f.local("i32"), vectors = f.local("i32");
  const s0 = f.local("v128"), s1 = f.local("v128"), s2 = f.local("v128"), s3 = f.local("v128");
  const z = f.local("f32"), y = f.local("f64");
  const product = (offset: number) =>
    f32x4.mul(f32x4.load(i32.add(get(weights), get(i)), offset), f32x4.load(i32.add(get(x), get(i)), offset));
  return f.body(
    set(blocks, whole(get(nBytes), 64)),
    set(vectors, whole(get(nBytes), 16)),
    whileBelow(
      get(row),
      get(rows),
      set(weights, get(w0)),
      set(unit, i32.const(0)),
      set(y, f64.fromF32(f32.load(get(w1), HIDDEN_BYTES))),
      whileBelow(
        get(unit),
        i32.const(HIDDEN_BYTES),
        ...[s0, s1, s2, s3].map((sum) => set(sum, f32x4.zero)),
        set(i, i32.const(0)),
        whileBelow(
          get(i),
          get(blocks),
          ...[s0, s1, s2, s3].map((sum, at) => addTo(sum, product(16 * at))),
          move(i, BLOCK),
        ),
        whileBelow(get(i), get(vectors), addTo(s0, product(0)), move(i, VECTOR)),
        set(z, sumOfLanes(get(s0))),
        ...[s1, s2, s3].map((sum) => set(z, f32.add(get(z), sumOfLanes(get(sum))))),
        whileBelow(
          get(i),
          get(nBytes),
          set(
            z,
            f32.add(
              get(z),
              f32.mul(f32.load(i32.add(get(weights), get(i))), f32.load(i32.add(get(x), get(i)))),
            ),
          ),
          move(i, FLOAT),
        ),
        set(z, f32.max(f32.add(get(z), f32.load(i32.add(get(b0), get(unit)))), f32.const(0))),
        f32.store(i32.add(get(hidden), get(unit)), get(z)),
        set(
          y,
          f64.add(get(y), f64.mul(f64.fromF32(get(z)), f64.fromF32(f32.load(i32.add(get(w1), get(unit)))))),
        ),
        move(weights, get(nBytes)),
        move(unit, FLOAT),
      ),
      f32.store(get(out), f32.fromF64(get(y))),
      move(x, get(nBytes)),
      move(hidden, i32.const(HIDDEN_BYTES)),
      move(out, FLOAT),
      move(row, i32.const(1)),
    ),
  );
}

function backward(): WasmFunction {
  const f = new WasmFunction("backward", "f64");
  const [x, hidden, out, targets, w1, gw0, gb0, gw1, rows, nBytes] = parameters(f, 10);
  const scale = f.parameter("f32");
  const i = f.local("i32"), grads = f.local("i32"), unit = f.local("i32"), row = f.local("i32");
  const vectors = f.local("i32"), gb1 = f.local("i32");
  const activation = f.local("f32"), dy = f.local("f32"), dz = f.local("f32"), dzs = f.local("v128");
  const error = f.local("f64"), sum = f.local("f64");
  const accumulate = (address: Code, value: Code) => f32.store(address, f32.add(f32.load(address), value));
  const place = i32.add(get(grads), get(i));
  return f.body(
    set(vectors, whole(get(nBytes), 16)),
    set(gb1, i32.add(get(gw1), i32.const(HIDDEN_BYTES))),
    whileBelow(
      get(row),
      get(rows),
      set(error, f64.sub(f64.fromF32(f32.load(get(out))), f64.fromF32(f32.load(get(targets))))),
      set(sum, f64.add(get(sum), f64.mul(get(error), get(error)))),
      set(dy, f32.mul(get(scale), f32.fromF64(get(error)))),
      accumulate(get(gb1), get(dy)),
      set(grads, get(gw0)),
      set(unit, i32.const(0)),
      whileBelow(
        get(unit),
        i32.const(HIDDEN_BYTES),
        set(activation, f32.load(i32.add(get(hidden), get(unit)))),
        // The gradient of ReLU at exactly 0 is 0, so half of the units need no work at all.
        when(
          f32.ne(get(activation), f32.const(0)),
          accumulate(i32.add(get(gw1), get(unit)), f32.mul(get(dy), get(activation))),
          set(dz, f32.mul(get(dy), f32.load(i32.add(get(w1), get(unit))))),
          accumulate(i32.add(get(gb0), get(unit)), get(dz)),
          set(dzs, f32x4.splat(get(dz))),
          set(i, i32.const(0)),
          whileBelow(
            get(i),
            get(vectors),
            f32x4.store(
              place,
              f32x4.add(f32x4.load(place), f32x4.mul(get(dzs), f32x4.load(i32.add(get(x), get(i))))),
            ),
            move(i, VECTOR),
          ),
          whileBelow(
            get(i),
            get(nBytes),
            accumulate(place, f32.mul(get(dz), f32.load(i32.add(get(x), get(i))))),
            move(i, FLOAT),
          ),
        ),
        move(grads, get(nBytes)),
        move(unit, FLOAT),
      ),
      move(x, get(nBytes)),
      move(hidden, i32.const(HIDDEN_BYTES)),
      move(out, FLOAT),
      move(targets, FLOAT),
      move(row, i32.const(1)),
    ),
    get(sum),
  );
}

function squares(): WasmFunction {
  const f = new WasmFunction("squares", "f64");
  const [values, bytes] = parameters(f, 2);
  const i = f.local("i32"), vectors = f.local("i32"), wide = f.local("v128"), low = f.local("v128");
  const high = f.local("v128"), sum = f.local("f64"), one = f.local("f64");
  const address = i32.add(get(values), get(i));
  const square = (into: Local, offset: number) => [
    ...set(wide, f64x2.loadFloats(address, offset)),
    ...set(into, f64x2.add(get(into), f64x2.mul(get(wide), get(wide)))),
  ];
  return f.body(
    set(vectors, whole(get(bytes), 16)),
    whileBelow(get(i), get(vectors), square(low, 0), square(high, 8), move(i, VECTOR)),
    set(low, f64x2.add(get(low), get(high))),
    set(sum, f64.add(f64x2.lane(get(low), 0), f64x2.lane(get(low), 1))),
    whileBelow(
      get(i),
      get(bytes),
      set(one, f64.fromF32(f32.load(address))),
      set(sum, f64.add(get(sum), f64.mul(get(one), get(one)))),
      move(i, FLOAT),
    ),
    get(sum),
  );
}

function update(): WasmFunction {
  const f = new WasmFunction("update", "f32");
  const [live, grads, velocity, nextLive, nextVelocity, bytes] = parameters(f, 6);
  const factors = ["f32", "f32", "f32", "f32"].map(() => f.parameter("f32"));
  const [clip = 0, decay = 0, momentum = 0, rate = 0] = factors;
  const i = f.local("i32"),
    vectors = f.local("i32"),
    witness = f.local("v128"),
    p = f.local("v128"),
    v = f.local("v128");
  const [clips, decays, momenta, rates] = factors.map(() => f.local("v128")) as [Local, Local, Local, Local];
  const p1 = f.local("f32"), v1 = f.local("f32"), bad = f.local("f32");
  const place = (array: Local) => i32.add(get(array), get(i));
  return f.body(
    set(vectors, whole(get(bytes), 16)),
    ...[clips, decays, momenta, rates].map((wide, at) => set(wide, f32x4.splat(get(factors[at] as Local)))),
    whileBelow(
      get(i),
      get(vectors),
      set(p, f32x4.load(place(live))),
      set(
        v,
        f32x4.add(
          f32x4.mul(get(momenta), f32x4.load(place(velocity))),
          f32x4.add(f32x4.mul(get(clips), f32x4.load(place(grads))), f32x4.mul(get(decays), get(p))),
        ),
      ),
      f32x4.store(place(nextVelocity), get(v)),
      set(p, f32x4.sub(get(p), f32x4.mul(get(rates), get(v)))),
      f32x4.store(place(nextLive), get(p)),
      // x − x is 0 for every finite number and NaN for all others.
      addTo(witness, f32x4.add(f32x4.sub(get(p), get(p)), f32x4.sub(get(v), get(v)))),
      move(i, VECTOR),
    ),
    whileBelow(
      get(i),
      get(bytes),
      set(p1, f32.load(place(live))),
      set(
        v1,
        f32.add(
          f32.mul(get(momentum), f32.load(place(velocity))),
          f32.add(f32.mul(get(clip), f32.load(place(grads))), f32.mul(get(decay), get(p1))),
        ),
      ),
      f32.store(place(nextVelocity), get(v1)),
      set(p1, f32.sub(get(p1), f32.mul(get(rate), get(v1)))),
      f32.store(place(nextLive), get(p1)),
      set(bad, f32.add(get(bad), f32.add(f32.sub(get(p1), get(p1)), f32.sub(get(v1), get(v1))))),
      move(i, FLOAT),
    ),
    f32.add(get(bad), sumOfLanes(get(witness))),
  );
}

function average(): WasmFunction {
  const f = new WasmFunction("average");
  const [averages, values, bytes] = parameters(f, 3);
  const keep = f.parameter("f32"), take = f.parameter("f32");
  const i = f.local("i32"), vectors = f.local("i32"), keeps = f.local("v128"), takes = f.local("v128");
  const from = i32.add(get(values), get(i)), to = i32.add(get(averages), get(i));
  return f.body(
    set(vectors, whole(get(bytes), 16)),
    set(keeps, f32x4.splat(get(keep))),
    set(takes, f32x4.splat(get(take))),
    whileBelow(
      get(i),
      get(vectors),
      f32x4.store(to, f32x4.add(f32x4.mul(get(keeps), f32x4.load(to)), f32x4.mul(get(takes), f32x4.load(from)))),
      move(i, VECTOR),
    ),
    whileBelow(
      get(i),
      get(bytes),
      f32.store(to, f32.add(f32.mul(get(keep), f32.load(to)), f32.mul(get(take), f32.load(from)))),
      move(i, FLOAT),
    ),
  );
}

/** So many i32 parameters. */
function parameters(f: WasmFunction, count: 2): [Local, Local];
function parameters(f: WasmFunction, count: 3): [Local, Local, Local];
function parameters(f: WasmFunction, count: 6): [Local, Local, Local, Local, Local, Local];
function parameters(f: WasmFunction, count: 8): [Local, Local, Local, Local, Local, Local, Local, Local];
function parameters(
  f: WasmFunction,
  count: 10,
): [...[Local, Local, Local, Local, Local], Local, Local, Local, Local, Local];
function parameters(f: WasmFunction, count: number): Local[] {
  return Array.from({ length: count }, () => f.parameter("i32"));
}
