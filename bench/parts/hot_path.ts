/**
 * The hot path: encode items through JetStream, a backend that answers at once, results out. The bare Rust loop and the sidecar
 * run one after the other, each with its own broker and backend, under the same load and with the same batch limits.
 */
import { NatsServer } from "../../tests/harness/nats_server.ts";
import { ManagedProcess, TestFolder } from "../../tests/harness/process.ts";
import { Sidecar } from "../../tests/harness/sidecar.ts";
import type { Tools } from "../lib/build.ts";
import { type BenchOptions, type BenchPart, median } from "../lib/part.ts";

/** Limits that both get; a pull of 512 fills eight batches. */
const MAX_BATCH = 64;
const OUTSTANDING = 512;
const CONNECTIONS = 4;

/** One run of the load generator, in its own words. */
interface LoadReport {
  readonly items_per_s: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly cpu_us_per_item: number;
  readonly peak_rss_mib: number;
}

/** Something that moves items; ready when started. */
interface Contender {
  readonly name: string;
  start(natsUrl: string, socket: string): Promise<{ readonly pid: number; stop(): Promise<void> } & AsyncDisposable>;
}

/** See the head of this file. */
export const hotPath: BenchPart = {
  name: "hot-path",
  async run(options) {
    const bare = await measure(bareLoop(options.tools), options);
    const sidecar = await measure(theSidecar, options);
    const ratio = {
      items_per_s: round(sidecar.items_per_s / bare.items_per_s, 3),
      cpu_us_per_item: round(sidecar.cpu_us_per_item / bare.cpu_us_per_item, 2),
    };
    return { result: { bare: { ...bare }, sidecar: { ...sidecar }, ratio }, lines: table(bare, sidecar, ratio) };
  },
};

function bareLoop(tools: Tools): Contender {
  return {
    name: "bare Rust loop",
    async start(natsUrl, socket) {
      const command = [tools.bare, "--nats", natsUrl, "--socket", socket];
      command.push("--max-batch", `${MAX_BATCH}`, "--outstanding", `${OUTSTANDING}`, "--conns", `${CONNECTIONS}`);
      const process = ManagedProcess.start({ name: "bare-sidecar", command });
      await process.line("it consumes", (line) => line === "READY");
      return {
        pid: process.pid,
        stop: async () => {
          await process.stop("SIGTERM");
        },
        [Symbol.asyncDispose]: () => process[Symbol.asyncDispose](),
      };
    },
  };
}

const theSidecar: Contender = {
  name: "worker-sidecar",
  async start(natsUrl, socket) {
    const sidecar = await Sidecar.start({
      args: ["--ingest", "nats"],
      env: {
        SIE_NATS_URL: natsUrl,
        SIE_POOL: "default",
        SIE_BUNDLE: "default",
        SIE_MACHINE_PROFILE: "l4",
        SIE_IPC_SOCKET_PATH: socket,
        SIE_IPC_POOL_SIZE: `${CONNECTIONS}`,
        SIE_MAX_CONCURRENT_BATCHES: `${CONNECTIONS}`,
        SIE_BATCHER_MAX_BATCH_REQUESTS: `${MAX_BATCH}`,
        SIE_NATS_FETCH_BUDGET: `${OUTSTANDING}`,
        SIE_PULL_LOOP_MAX_OUTSTANDING: `${OUTSTANDING}`,
        RUST_LOG: "warn",
      },
    });
    return {
      pid: sidecar.process.pid,
      stop: () => sidecar.stop(),
      [Symbol.asyncDispose]: () => sidecar[Symbol.asyncDispose](),
    };
  },
};

/** One warm-up run and the median of three, figure by figure. */
async function measure(contender: Contender, options: BenchOptions): Promise<LoadReport> {
  using folder = new TestFolder();
  await using nats = await NatsServer.start({ folder: folder.path });
  const socket = folder.file("backend.sock");
  await using backend = ManagedProcess.start({
    name: "stub-backend",
    command: [options.tools.stub, "--socket", socket],
  });
  await backend.line("it listens", (line) => line.startsWith("READY"));
  await load(options, nats, ["--mode", "setup"]);
  await using process = await contender.start(nats.url, socket);
  const items = options.quick ? 20_000 : 50_000;
  const runs: LoadReport[] = [];
  for (let run = 0; run < 4; run++) {
    const report = readReport(await load(options, nats, ["--items", `${items}`, "--pid", `${process.pid}`]));
    options.progress(
      `${contender.name}: ${run === 0 ? "warm-up" : `run ${run}`}, ${items} items: ` +
        `${report.items_per_s} items/s, ${report.cpu_us_per_item} µs of CPU an item`,
    );
    if (run > 0) runs.push(report);
  }
  await process.stop();
  const middle = (figure: keyof LoadReport) => median(runs.map((report) => report[figure]));
  return {
    items_per_s: middle("items_per_s"),
    p50_ms: middle("p50_ms"),
    p99_ms: middle("p99_ms"),
    cpu_us_per_item: middle("cpu_us_per_item"),
    peak_rss_mib: middle("peak_rss_mib"),
  };
}

async function load(options: BenchOptions, nats: NatsServer, args: readonly string[]): Promise<string> {
  const process = ManagedProcess.start({
    name: "load",
    command: [options.tools.load, "--nats", nats.url, ...args],
  });
  const status = await process.end(300_000);
  if (status.code !== 0) throw new Error(`the load generator ended with ${status.code}:\n${process.output()}`);
  return process.output();
}

/** The load generator's last line. An item that failed or came twice makes the figures worthless. */
function readReport(output: string): LoadReport {
  const report: unknown = JSON.parse(output.trim().split("\n").at(-1) ?? "");
  if (typeof report !== "object" || report === null) throw new Error(`not a report: ${output}`);
  const figures = new Map<string, unknown>(Object.entries(report));
  const number = (name: string): number => {
    const value = figures.get(name);
    if (typeof value !== "number") throw new Error(`the report has no ${name}: ${output}`);
    return value;
  };
  if (number("errors") > 0 || number("duplicates") > 0) throw new Error(`items failed or came twice: ${output}`);
  return {
    items_per_s: number("items_per_s"),
    p50_ms: number("p50_ms"),
    p99_ms: number("p99_ms"),
    cpu_us_per_item: number("cpu_us_per_item"),
    peak_rss_mib: number("peak_rss_mib"),
  };
}

function table(
  bare: LoadReport,
  sidecar: LoadReport,
  ratio: { items_per_s: number; cpu_us_per_item: number },
): string[] {
  const row = (name: string, ...cells: readonly (string | number)[]) =>
    name.padEnd(18) + cells.map((cell) => String(cell).padStart(12)).join("");
  const figures = (name: string, report: LoadReport) =>
    row(
      name,
      Math.round(report.items_per_s),
      report.p50_ms.toFixed(1),
      report.p99_ms.toFixed(1),
      report.cpu_us_per_item.toFixed(1),
      Math.round(report.peak_rss_mib),
    );
  return [
    row("hot path", "items/s", "p50 ms", "p99 ms", "CPU µs/item", "peak MiB"),
    figures("bare Rust loop", bare),
    figures("worker-sidecar", sidecar),
    row("ratio", ratio.items_per_s.toFixed(2), "", "", ratio.cpu_us_per_item.toFixed(2), ""),
  ];
}

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
