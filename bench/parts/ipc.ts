/** What a call to the backend costs: RunBatch against the stub backend, over both transports, without broker and dispatch. */
import { cpuUsage } from "node:process";
import { type BackendPool, createBackend } from "../../src/ipc/backend_pool.ts";
import { INLINE_INPUT } from "../../src/wire/ipc/batch_items.ts";
import { decodeWorkItem } from "../../src/wire/work_item.ts";
import { ManagedProcess, TestFolder } from "../../tests/harness/process.ts";
import { workItemBytes } from "../../tests/harness/work_items.ts";
import { type BenchOptions, type BenchPart, median } from "../lib/part.ts";

/** Calls at once, as the sidecar has them with four batches in flight. */
const CALLERS = 4;
const ROUNDS = 3;

/** One kind of call. */
interface Shape {
  readonly name: string;
  readonly items: number;
  readonly mux: boolean;
}

const SHAPES: readonly Shape[] = [
  { name: "pool, 64 items", items: 64, mux: false },
  { name: "mux, 64 items", items: 64, mux: true },
  { name: "pool, 1 item", items: 1, mux: false },
];

/** What one call of a shape takes. */
interface Cost {
  readonly calls_per_s: number;
  /** CPU of this process alone, user and system, microseconds. */
  readonly cpu_us_per_call: number;
}

/** Micro-benchmark of `src/ipc`. */
export const ipc: BenchPart = {
  name: "ipc",
  async run(options) {
    using folder = new TestFolder();
    const socket = folder.file("backend.sock");
    await using stub = ManagedProcess.start({
      name: "stub-backend",
      command: [options.tools.stub, "--socket", socket, "--dims", "384"],
    });
    await stub.line("it listens", (line) => line.startsWith("READY"));
    const costs: (readonly [Shape, Cost])[] = [];
    for (const shape of SHAPES) costs.push([shape, await measure(shape, socket, options)]);
    return {
      result: Object.fromEntries(costs.map(([shape, cost]) => [shape.name.replaceAll(/[ ,]+/g, "_"), { ...cost }])),
      lines: [
        `ipc: RunBatch against the stub backend, ${CALLERS} calls at once, 384 floats an item`,
        ...costs.map(([shape, cost]) => row(shape, cost)),
      ],
    };
  },
};

function row({ name, items }: Shape, cost: Cost): string {
  const perItem = cost.cpu_us_per_call / items;
  return `  ${name.padEnd(16)} ${String(cost.calls_per_s).padStart(7)} calls/s ` +
    `${cost.cpu_us_per_call.toFixed(1).padStart(8)} µs CPU a call ${perItem.toFixed(2).padStart(7)} an item`;
}

/** One warm-up, then the median of three rounds. */
async function measure(shape: Shape, socket: string, { quick }: BenchOptions): Promise<Cost> {
  const backend = createBackend({
    sockets: [socket],
    poolSize: CALLERS,
    requestTimeoutMs: 60_000,
    modelReadyTimeoutMs: 60_000,
    generateFrameTimeoutMs: 60_000,
    mux: shape.mux,
  });
  try {
    const calls = (quick ? 200 : 4000) * (shape.items === 1 ? 4 : 1);
    const rounds: Cost[] = [];
    for (let round = 0; round <= ROUNDS; round++) rounds.push(await run(backend, shape, calls));
    rounds.shift();
    return {
      calls_per_s: Math.round(median(rounds.map((each) => each.calls_per_s))),
      cpu_us_per_call: Number(median(rounds.map((each) => each.cpu_us_per_call)).toFixed(1)),
    };
  } finally {
    backend.close();
  }
}

async function run(backend: BackendPool, shape: Shape, calls: number): Promise<Cost> {
  const entries = Array.from({ length: shape.items }, (_, i) => ({
    work: decodeWorkItem(
      workItemBytes({ request_id: `request-${i}`, item: { text: "ten words that say about what a short text does" } }),
    ),
    input: INLINE_INPUT,
  }));
  const body = {
    modelId: "bench/model",
    operation: "encode" as const,
    batchId: 0,
    loraKey: "",
    totalCost: 64,
    entries,
  };
  let left = calls;
  const caller = async () => {
    while (left-- > 0) {
      const { outcomes } = await backend.runBatch(body);
      if (outcomes.length !== shape.items) throw new Error(`${outcomes.length} outcomes for ${shape.items} items`);
    }
  };
  const cpu = cpuUsage();
  const start = performance.now();
  await Promise.all(Array.from({ length: CALLERS }, caller));
  const seconds = (performance.now() - start) / 1000;
  const used = cpuUsage(cpu);
  return { calls_per_s: calls / seconds, cpu_us_per_call: (used.user + used.system) / calls };
}
