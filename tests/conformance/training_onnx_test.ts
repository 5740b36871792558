/**
 * The checkpoints that a trainer exports, checked by onnx.checker and run by onnxruntime: same outputs, any batch size.
 * `ONNX_PYTHON` names the Python that has both; `deno task conformance` installs one.
 */
import assert from "node:assert/strict";
import { forwardRows } from "../../src/training/network.ts";
import { readOnnx } from "../../src/training/onnx_reader.ts";
import { writeOnnx } from "../../src/training/onnx_writer.ts";
import { seededRandom } from "../../src/training/random.ts";
import { fromFileUrl } from "../harness/paths.ts";
import { TestFolder } from "../harness/process.ts";
import { LineClient, someParams, TestService } from "../training/support.ts";

const SCRIPT = fromFileUrl(new URL("../training/onnx_peer/check.py", import.meta.url));

interface Report {
  readonly outputs: number[];
  readonly single: number[];
  readonly input: [string, string, unknown[]];
  readonly output: [string, string, unknown[]];
  readonly opsets: [string, number][];
  readonly ir_version: number;
  readonly nodes: string[];
  readonly initializers: string[];
}

interface Task {
  readonly file: string;
  readonly rows: number[][];
}

async function check(tasks: readonly Task[]): Promise<Report[]> {
  const python = Deno.env.get("ONNX_PYTHON");
  assert.ok(python, "ONNX_PYTHON is not set: run this by `deno task conformance`");
  const child = new Deno.Command(python, { args: [SCRIPT], stdin: "piped", stdout: "piped", stderr: "piped" }).spawn();
  const writer = child.stdin.getWriter();
  for (const task of tasks) await writer.write(new TextEncoder().encode(`${JSON.stringify(task)}\n`));
  await writer.close();
  const { success, stdout, stderr } = await child.output();
  assert.ok(success, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout).trimEnd().split("\n").map((line) => JSON.parse(line) as Report);
}

/** Rows of ordinary, zero and large features. */
function rows(nFeatures: number, count: number): number[][] {
  const random = seededRandom(nFeatures);
  const row = (make: () => number) => Array.from({ length: nFeatures }, make);
  return [
    row(() => 0),
    row(() => Math.fround(1e4 * random())),
    ...Array.from({ length: count }, () => row(() => Math.fround(2 * random() - 1))),
  ];
}

/**
 * Both sum in another order. Where large terms cancel, float32 leaves an error in proportion to the terms, not to their
 * sum; a row's largest feature stands for the size of its terms.
 */
function assertSameScores(
  actual: readonly number[],
  expected: ArrayLike<number>,
  rows: number[][],
  what: string,
): void {
  assert.equal(actual.length, expected.length);
  actual.forEach((value, i) => {
    const score = expected[i] as number, largest = Math.max(...(rows[i] ?? []).map(Math.abs));
    const limit = 1e-5 * (1 + Math.max(Math.abs(score), largest));
    assert.ok(Math.abs(value - score) <= limit, `${what}, row ${i}: ${value} and ${score}`);
  });
}

Deno.test("written models pass the checker and give our scores, for narrow and wide inputs", async () => {
  using folder = new TestFolder();
  const widths = [1, 3, 80, 1000];
  const tasks = widths.map((n) => {
    const file = folder.file(`n${n}.onnx`);
    Deno.writeFileSync(file, writeOnnx(someParams(n, n), "0.1.0"));
    return { file, rows: rows(n, 33) };
  });
  const reports = await check(tasks);
  reports.forEach((report, at) => {
    const n = widths[at] ?? 0, task = tasks[at]?.rows ?? [];
    assert.deepEqual(report.input, ["features", "tensor(float)", ["batch", n]]);
    assert.deepEqual(report.output, ["score", "tensor(float)", ["batch", 1]]);
    assert.deepEqual([report.opsets, report.ir_version], [[["", 17]], 8]);
    assert.deepEqual(report.nodes, ["Gemm", "Relu", "Gemm"]);
    assert.deepEqual(report.initializers, ["0.weight", "0.bias", "2.weight", "2.bias"]);
    const scores = new Float32Array(task.length);
    forwardRows(someParams(n, n), Float32Array.from(task.flat()), 0, task.length, scores);
    assertSameScores(report.outputs, scores, task, `width ${n}`);
    assertSameScores(report.single, scores, task, `width ${n}, one row at a time`);
  });
});

Deno.test("a trained checkpoint is read by onnxruntime as by us", async () => {
  await using trainer = await TestService.start({
    VMAFX_SIDECAR_LR: "0.01",
    VMAFX_SIDECAR_EMA_DECAY: "0.9",
    VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "200",
  });
  using client = await LineClient.connect(trainer.socket);
  const random = seededRandom(1);
  let path: unknown = null;
  for (let i = 0; path === null && i < 1000; i++) {
    const features = [random(), random(), random()];
    const answer = await client.ask({ features, true_score: 50 + 10 * (features[0] ?? 0) });
    path = answer?.["checkpoint"] ?? null;
  }
  assert.ok(typeof path === "string");
  const inputs = rows(3, 20);
  const [report] = await check([{ file: path, rows: inputs }]);
  const scores = new Float32Array(inputs.length);
  forwardRows(readOnnx(Deno.readFileSync(path), 3), Float32Array.from(inputs.flat()), 0, inputs.length, scores);
  assertSameScores(report?.outputs ?? [], scores, inputs, path);
});
