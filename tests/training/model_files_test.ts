/** Model files from outside: damaged, hostile, and in the forms that exporters and modules write. */
import assert from "node:assert/strict";
import { TrainingError } from "../../src/training/errors.ts";
import { readOnnx } from "../../src/training/onnx_reader.ts";
import { writeOnnx } from "../../src/training/onnx_writer.ts";
import { Params } from "../../src/training/params.ts";
import { ProtoWriter } from "../../src/training/protobuf.ts";
import { seededRandom } from "../../src/training/random.ts";
import { baseModelName, loadSeedModel } from "../../src/training/seed_model.ts";
import { readTorchStateDict } from "../../src/training/torch_seed.ts";
import { join } from "../harness/paths.ts";
import { TestFolder } from "../harness/process.ts";
import { vectorsDir } from "../harness/vectors.ts";
import { someParams, TestLog } from "./support.ts";

function vector(name: string): Uint8Array<ArrayBuffer> {
  return Deno.readFileSync(join(vectorsDir(), "training", name));
}

/** Reads altered bytes: they may still be a model, but nothing else than a TrainingError may come of them. */
function survives(read: () => Params): boolean {
  try {
    assert.ok(read().isFinite());
    return true;
  } catch (thrown) {
    assert.ok(thrown instanceof TrainingError, `${thrown}`);
    return false;
  }
}

Deno.test("what is written is read back, for narrow and wide models", () => {
  for (const n of [1, 3, 80, 5000]) {
    const params = someParams(n, n);
    const bytes = writeOnnx(params, "1.2.3");
    assert.deepEqual(readOnnx(bytes, n).flat, params.flat);
    assert.deepEqual(writeOnnx(params, "1.2.3"), bytes);
  }
});

Deno.test("every truncation of a model is refused", () => {
  const bytes = writeOnnx(someParams(1), "0");
  for (let length = 0; length < bytes.length; length++) {
    assert.equal(survives(() => readOnnx(bytes.subarray(0, length), 3)), false, `${length} bytes`);
  }
});

Deno.test("altered models and state dicts never do worse than being refused", () => {
  const random = seededRandom(4);
  for (
    const [name, read] of [
      ["onnx/torch_dynamo_opset17.onnx", readOnnx],
      ["onnx/matmul_add_opset17.onnx", readOnnx],
      ["seed/state_dict_n3.pt", readTorchStateDict],
      ["seed/state_dict_n3_shared_storage.pt", readTorchStateDict],
    ] as const
  ) {
    const original = vector(name);
    let refused = 0;
    for (let round = 0; round < 3000; round++) {
      const bytes = original.slice();
      for (let edits = 1 + Math.floor(4 * random()); edits > 0; edits--) {
        // Most bytes are weights; the structure is at both ends.
        const span = random() < 0.5 ? bytes.length : 400;
        const at = Math.floor(random() * span);
        bytes[random() < 0.5 ? at : bytes.length - 1 - at] = Math.floor(256 * random());
      }
      if (!survives(() => read(bytes, 3))) refused++;
    }
    assert.ok(refused > 500, `${name}: only ${refused} refused`);
  }
});

Deno.test("a declared length beyond the file is refused without being allocated", () => {
  const huge = new Uint8Array([0x08, 8, 0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f]);
  assert.throws(() => readOnnx(huge, 3), {
    code: "invalid_model",
    message: /declares 4294967295 bytes where 0 are left/,
  });
});

/** A model with chosen nodes, in a form that no exporter writes. */
function graph(nodes: readonly ProtoWriter[], params: Params): Uint8Array {
  const floats = (values: Float32Array) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const tensor = (name: string, dims: number[], values: Float32Array) => {
    const writer = new ProtoWriter();
    for (const dim of dims) writer.integer(1, dim);
    return writer.integer(2, 1).bytes(4, floats(values)).string(8, name);
  };
  const constant = new ProtoWriter().string(2, "b0").string(4, "Constant")
    .message(5, new ProtoWriter().string(1, "value").message(5, tensor("", [1, 64], params.b0)));
  const writer = new ProtoWriter().message(1, constant);
  for (const node of nodes) writer.message(1, node);
  writer.string(2, "g").message(5, tensor("w0", [64, params.nFeatures], params.w0))
    .message(5, tensor("w1", [1, 64], params.w1)).message(5, tensor("b1", [], params.b1));
  const input = new ProtoWriter().string(1, "in")
    .message(2, new ProtoWriter().message(1, new ProtoWriter().integer(1, 1)));
  writer.message(11, input).message(12, new ProtoWriter().string(1, "out"));
  return new ProtoWriter().integer(1, 3).message(7, writer).message(8, new ProtoWriter().integer(2, 17)).finish();
}

function node(type: string, inputs: string[], output: string, transB = false, domain = ""): ProtoWriter {
  const writer = new ProtoWriter();
  for (const input of inputs) writer.string(1, input);
  writer.string(2, output).string(4, type);
  if (transB) writer.message(5, new ProtoWriter().string(1, "transB").integer(3, 1));
  return domain === "" ? writer : writer.string(7, domain);
}

Deno.test("Constant nodes, Identity, float_data, a scalar bias and IR 3 are understood", () => {
  const params = someParams(5);
  const bytes = graph([
    node("Identity", ["in"], "x"),
    node("Gemm", ["in", "w0", "b0"], "h", true),
    node("Identity", ["h"], "h2"),
    node("Relu", ["h2"], "a"),
    node("Gemm", ["a", "w1", "b1"], "y", true),
    node("Identity", ["y"], "out"),
  ], params);
  assert.deepEqual(readOnnx(bytes, 3).flat, params.flat);
});

Deno.test("graphs of another shape are refused with their reason", () => {
  const params = someParams(5);
  const gemm = node("Gemm", ["in", "w0", "b0"], "h", true), relu = node("Relu", ["h"], "a");
  const last = node("Gemm", ["a", "w1", "b1"], "out", true);
  for (
    const [nodes, reason] of [
      [[gemm, relu], /ends where Gemm or MatMul must follow/],
      [[gemm, last], /operator Gemm where Relu must follow/],
      [[gemm, relu, last, node("Relu", ["out"], "z")], /operator Relu follows the second layer/],
      [[gemm, node("Relu", ["in"], "a"), last], /Relu does not take "h"/],
      [[gemm, relu, node("Gemm", ["h", "w1", "b1"], "out", true)], /Gemm does not take "a"/],
      [[gemm, relu, node("Gemm", ["a", "w0", "b1"], "out", true)], /shape \[64,3\] instead of \[1,64\]/],
      [[gemm, relu, node("Gemm", ["a", "h", "b1"], "out", true)], /"h" is not a constant/],
      [[gemm, relu, node("Gemm", ["a", "w1"], "out", true)], /"" is not a constant/],
      [[gemm, relu, node("Gemm", ["a", "w1", "b1"], "other", true)], /output "out" is not the second layer's/],
      [[gemm, relu, node("Gemm", ["a", "w1", "b1"], "out", true, "evil")], /operator domain "evil" is not supported/],
      [
        [node("Identity", ["q"], "p"), node("Identity", ["p"], "q"), node("Gemm", ["p", "w0", "b0"], "h", true)],
        /form a circle/,
      ],
      [[gemm, node("Gemm", ["in", "w0", "b0"], "b0", true)], /"b0" is defined twice|operator Gemm where Relu/],
    ] as const
  ) {
    assert.throws(() => readOnnx(graph(nodes, params), 3), { code: "invalid_model", message: reason });
  }
});

/** Assembles a pickle; names of the opcodes as in the protocol. */
function pickle(...parts: (number | string | Uint8Array)[]): Uint8Array {
  return Uint8Array.from(
    parts.flatMap((part) =>
      typeof part === "number" ? [part] : typeof part === "string" ? [...new TextEncoder().encode(part)] : [...part]
    ),
  );
}

function word(text: string): Uint8Array {
  return pickle(0x58, text.length, 0, 0, 0, text);
}

/** A stored ZIP file. */
function zip(entries: Record<string, Uint8Array>): Uint8Array {
  const table = Uint32Array.from({ length: 256 }, (_, byte) => {
    let value = byte;
    for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
    return value;
  });
  const crc = (data: Uint8Array) =>
    ~data.reduce((sum, byte) => (sum >>> 8) ^ (table[(sum ^ byte) & 255] as number), ~0) >>> 0;
  const u16 = (value: number) => [value & 255, value >> 8 & 255],
    u32 = (value: number) => [...u16(value), ...u16(value >>> 16)];
  const body: number[] = [], directory: number[] = [];
  for (const [name, data] of Object.entries(entries)) {
    const bytes = [...new TextEncoder().encode(name)];
    const common = [
      ...u16(0),
      ...u16(0),
      ...u32(0),
      ...u32(crc(data)),
      ...u32(data.length),
      ...u32(data.length),
      ...u16(bytes.length),
      ...u16(0),
    ];
    directory.push(
      0x50,
      0x4b,
      1,
      2,
      ...u16(20),
      ...u16(20),
      ...common,
      ...u16(0),
      ...u16(0),
      ...u16(0),
      ...u32(0),
      ...u32(body.length),
      ...bytes,
    );
    body.push(0x50, 0x4b, 3, 4, ...u16(20), ...common, ...bytes, ...data);
  }
  const count = Object.keys(entries).length;
  return Uint8Array.from([
    ...body,
    ...directory,
    0x50,
    0x4b,
    5,
    6,
    ...u32(0),
    ...u16(count),
    ...u16(count),
    ...u32(directory.length),
    ...u32(body.length),
    ...u16(0),
  ]);
}

const ORDERED_DICT = pickle(0x63, "collections\nOrderedDict\n", 0x29, 0x52);

function tensor(type: string, key: string, count: number, sizes: number[]): Uint8Array {
  const ints = (values: number[]) => pickle(0x28, ...values.flatMap((value) => [0x4d, value & 255, value >> 8]), 0x74);
  const strides = sizes.map((_, axis) => sizes.slice(axis + 1).reduce((product, size) => product * size, 1));
  return pickle(
    0x63,
    "torch._utils\n_rebuild_tensor_v2\n",
    0x28,
    0x28,
    word("storage"),
    0x63,
    `torch\n${type}\n`,
    word(key),
    word("cpu"),
    0x4d,
    count & 255,
    count >> 8,
    0x74,
    0x51,
    0x4b,
    0,
    ints(sizes),
    ints(strides),
    0x89,
    ORDERED_DICT,
    0x74,
    0x52,
  );
}

function stateDict(type: string, tail: Uint8Array = pickle()): Uint8Array {
  const shapes: [string, number[]][] = [["0.weight", [64, 3]], ["0.bias", [64]], ["2.weight", [1, 64]], ["2.bias", [
    1,
  ]]];
  const items = shapes.flatMap((
    [name, sizes],
    at,
  ) => [word(name), tensor(type, `${at}`, sizes.reduce((a, b) => a * b), sizes)]);
  return pickle(0x80, 2, ORDERED_DICT, 0x28, ...items, 0x75, tail, 0x2e);
}

function halves(count: number): Uint8Array {
  // 1.0, -2.0, the smallest subnormal, 0
  const patterns = [0x3c00, 0xc000, 0x0001, 0x0000];
  return new Uint8Array(Uint16Array.from({ length: count }, (_, i) => patterns[i % 4] as number).buffer);
}

const HALF_DATA = { "m/data/0": halves(192), "m/data/1": halves(64), "m/data/2": halves(64), "m/data/3": halves(1) };

Deno.test("a module's own state dict, with its version metadata, and half precision are read", () => {
  // torch writes {"_metadata": OrderedDict({"": {"version": 1}})} as the dictionary's attributes.
  const metadata = pickle(
    0x7d,
    word("_metadata"),
    ORDERED_DICT,
    word(""),
    0x7d,
    word("version"),
    0x4b,
    1,
    0x73,
    0x73,
    0x73,
    0x62,
  );
  const params = readTorchStateDict(
    zip({ "m/data.pkl": stateDict("HalfStorage", metadata), "m/version": pickle("3\n"), ...HALF_DATA }),
    3,
  );
  assert.deepEqual([...params.w0.subarray(0, 5)], [1, -2, 2 ** -24, 0, 1]);
  assert.equal(params.b1[0], 1);
});

Deno.test("a pickle that names anything else is refused before it could do anything", () => {
  const call = (name: string) => pickle(0x80, 2, 0x63, name, 0x28, word("touch /owned"), 0x74, 0x52, 0x2e);
  for (
    const name of [
      "os\nsystem\n",
      "builtins\neval\n",
      "torch\nload\n",
      "torch._utils\n_rebuild_parameter\n",
      "__proto__\nx\n",
    ]
  ) {
    assert.throws(() => readTorchStateDict(zip({ "m/data.pkl": call(name), ...HALF_DATA }), 3), {
      code: "invalid_seed",
      message: /global name ".*" is refused/,
    });
  }
  for (
    const [bytes, reason] of [
      [pickle(0x80, 4, 0x2e), /pickle protocol 4 is not 2/],
      [pickle(0x80, 2, 0x69, "os\nsystem\n"), /pickle opcode 0x69 is refused/],
      [pickle(0x80, 2, 0x2e), /stack is empty/],
      [pickle(0x80, 2, 0x68, 7), /recalls value 7/],
      [pickle(0x80, 2, 0x58, 255, 255, 255, 255), /ends too early/],
      [pickle(0x80, 2, ...new Array<number>(5000).fill(0x4e)), /more than 4096 stack places/],
      [pickle(0x80, 2, 0x7d, 0x2e), /key "0.weight" is missing/],
    ] as const
  ) {
    assert.throws(() => readTorchStateDict(zip({ "m/data.pkl": bytes, ...HALF_DATA }), 3), {
      code: "invalid_seed",
      message: reason,
    });
  }
});

Deno.test("archives that do not hold what they say are refused", () => {
  const good = { "m/data.pkl": stateDict("HalfStorage"), ...HALF_DATA };
  assert.ok(readTorchStateDict(zip(good), 3));
  for (
    const [entries, reason] of [
      [{ ...good, "m/byteorder": pickle("big") }, /big-endian/],
      [{ ...good, "m/data/1": halves(63) }, /data\/1 has 126 bytes instead of 128/],
      [{ ...HALF_DATA }, /no data.pkl/],
      [{ "m/data.pkl": stateDict("HalfStorage") }, /no data\/0/],
      [{ ...good, "m/data/3": Uint8Array.of(0x00, 0x7c) }, /not a finite float32/],
    ] as const
  ) {
    assert.throws(() => readTorchStateDict(zip(entries), 3), { code: "invalid_seed", message: reason });
  }
  // Every entry of the directory leads to the same large one: its checksum would be worked out once for each.
  const repeated = zip({ "m/data/0": new Uint8Array(100_000), "m/data/1": pickle(), "m/data/2": pickle() });
  const view = new DataView(repeated.buffer);
  for (let at = repeated.length - 22 - 3 * (46 + "m/data/0".length); at < repeated.length - 22; at += 46 + 8) {
    view.setUint32(at + 16, view.getUint32(repeated.length - 22 - 3 * (46 + 8) + 16, true), true);
    view.setUint32(at + 24, 100_000, true);
    view.setUint32(at + 42, 0, true);
  }
  assert.throws(() => readTorchStateDict(repeated, 3), { message: "the archive's entries overlap" });
  const damaged = zip(good);
  const inside = 30 + "m/data.pkl".length + 5;
  damaged[inside] = (damaged[inside] as number) ^ 1;
  assert.throws(() => readTorchStateDict(damaged, 3), { message: 'entry "m/data.pkl" has a wrong checksum' });
});

Deno.test("a seed that cannot be used gives a new model and a line in the log, never an error", async () => {
  using folder = new TestFolder();
  const good = writeOnnx(someParams(8), "0");
  Deno.writeFileSync(folder.file("model_v000042.onnx"), good);
  Deno.writeFileSync(folder.file("cut.onnx"), good.subarray(0, 100));
  Deno.writeFileSync(folder.file("dict.pt"), vector("seed/state_dict_n3.pt"));
  Deno.writeFileSync(folder.file("old.pt"), vector("seed/state_dict_n3_legacy.pt"));
  for (
    const [path, loaded, version, line] of [
      [folder.file("model_v000042.onnx"), true, 42, "INFO base model"],
      [folder.file("dict.pt"), true, null, "INFO base model"],
      [folder.file("cut.onnx"), false, null, "ERROR base model"],
      [folder.file("old.pt"), false, null, "the old format of PyTorch"],
      [folder.file("absent.onnx"), false, null, `WARN Base model not found at '${folder.file("absent.onnx")}'`],
      ["", false, null, "WARN Base model not found at ''"],
      [folder.path, false, null, "is not a regular file"],
    ] as const
  ) {
    const log = new TestLog();
    const seed = await loadSeedModel(path, 3, seededRandom(1), log);
    assert.deepEqual([seed.loaded, seed.version], [loaded, version], path);
    assert.ok(log.has(line), `${path}: ${log.lines}`);
    if (!loaded) assert.deepEqual(seed.params.flat, Params.random(3, seededRandom(1)).flat);
  }
  assert.equal(baseModelName("", "/models/chug-hdr-v1.onnx"), "chug-hdr-v1");
  assert.equal(baseModelName("x", "/models/chug-hdr-v1.onnx"), "x");
  assert.equal(baseModelName("", ""), "online");
});
