/**
 * Streams through the local socket beside the same streams read directly from the same backend: what the sidecar adds to a chunk,
 * and how many chunks a second it moves (one stream, and 64 at once).
 */
import { LocalIngestClient } from "../../src/client/client.ts";
import { createBackend } from "../../src/ipc/backend_pool.ts";
import { systemClock } from "../../src/runtime/clock.ts";
import { MsgpackReader } from "../../src/wire/msgpack/reader.ts";
import { fromFileUrl } from "../../tests/harness/paths.ts";
import { ManagedProcess, TestFolder } from "../../tests/harness/process.ts";
import { Sidecar } from "../../tests/harness/sidecar.ts";
import { msgpack, workItemFields } from "../../tests/harness/work_items.ts";
import type { BenchOptions, BenchPart } from "../lib/part.ts";

/** A way to read one stream: calls `onChunk` with the text of each chunk. */
type ReadStream = (prompt: string, onChunk: (text: string) => void) => Promise<void>;

interface Figures {
  readonly chunks_per_s: number;
  readonly p50_us: number;
  readonly p99_us: number;
}

/** One shape of load. */
interface Load {
  readonly name: string;
  readonly streams: number;
  readonly chunks: number;
  /** Pause between two chunks of a stream in milliseconds; 0 measures throughput, more measures latency. */
  readonly gapMs: number;
}

function loads(quick: boolean): readonly Load[] {
  const chunks = quick ? 400 : 2000;
  return [
    { name: "one stream, paced", streams: 1, chunks, gapMs: 1 },
    { name: "64 streams, paced", streams: 64, chunks: chunks / 10, gapMs: 20 },
    { name: "one stream, unpaced", streams: 1, chunks: chunks * 10, gapMs: 0 },
    { name: "64 streams, unpaced", streams: 64, chunks: chunks, gapMs: 0 },
  ];
}

function nowUs(): number {
  return Math.round((performance.timeOrigin + performance.now()) * 1000);
}

async function measure(read: ReadStream, { streams, chunks, gapMs }: Load): Promise<Figures> {
  const delays = new Float64Array(streams * chunks);
  let count = 0;
  const startedUs = nowUs();
  await Promise.all(Array.from({ length: streams }, () =>
    read(`${chunks} ${gapMs}`, (text) => {
      delays[count++] = nowUs() - Number(text);
    })));
  const seconds = (nowUs() - startedUs) / 1e6;
  if (count !== streams * chunks) throw new Error(`${count} of ${streams * chunks} chunks came`);
  delays.sort();
  const percentile = (part: number) => Math.round(delays[Math.floor(part * (count - 1))] ?? 0);
  return { chunks_per_s: Math.round(count / seconds), p50_us: percentile(0.5), p99_us: percentile(0.99) };
}

/** Reads streams straight from the backend, with the sidecar's own client of it. */
function direct(socket: string): { readonly read: ReadStream; close(): void } {
  const backend = createBackend({
    sockets: [socket],
    poolSize: 1,
    requestTimeoutMs: 60_000,
    modelReadyTimeoutMs: 60_000,
    generateFrameTimeoutMs: 60_000,
    clock: systemClock,
  });
  let next = 0;
  return {
    async read(prompt, onChunk) {
      const fields = workItemFields({
        request_id: `direct-${next++}`,
        operation: "generate",
        item: null,
        generate: { prompt, max_new_tokens: 1 },
      });
      for await (const event of backend.generate("bench/model", msgpack(fields))) {
        if (event.kind === "publish") onChunk(textDelta(event.payload));
      }
    },
    close: () => backend.close(),
  };
}

function textDelta(payload: Uint8Array): string {
  const reader = new MsgpackReader(payload);
  for (let left = reader.mapHeader(); left > 0; left--) {
    if (reader.text() === "text_delta") return reader.text();
    reader.skip();
  }
  throw new Error("a chunk without text_delta");
}

function throughSidecar(client: LocalIngestClient): ReadStream {
  return async (prompt, onChunk) => {
    const request = { model: "bench/model", parameters: { prompt, max_new_tokens: 1 } };
    for await (const chunk of client.generate(request)) onChunk(chunk.textDelta);
  };
}

/** See the head of this file. */
export const generation: BenchPart = {
  name: "generation",
  async run(options: BenchOptions) {
    using folder = new TestFolder();
    const socket = folder.file("backend.sock");
    const ingest = folder.file("ingest.sock");
    const script = fromFileUrl(new URL("../lib/generate_stub.ts", import.meta.url));
    await using backend = ManagedProcess.start({
      name: "generate-stub",
      command: [Deno.execPath(), "run", "-q", "--no-prompt", ...stubPermissions(folder.path), script, socket],
    });
    await backend.line("it listens", (line) => line.startsWith("READY"));
    await using sidecar = await Sidecar.start({
      args: ["--ingest", "local", "--local-socket", ingest],
      env: {
        SIE_POOL: "default",
        SIE_BUNDLE: "default",
        SIE_MACHINE_PROFILE: "cpu",
        SIE_IPC_SOCKET_PATH: socket,
        SIE_SIDECAR_LOCAL_SOCKET: ingest,
        SIE_SIDECAR_INGEST: "local",
        RUST_LOG: "warn",
      },
    });
    using client = new LocalIngestClient({
      socketPath: ingest,
      route: { pool: "default", machineProfile: "cpu", bundle: "default" },
    });
    const straight = direct(socket);
    const result: Record<string, { direct: Figures; sidecar: Figures; added: { p50_us: number; p99_us: number } }> = {};
    const lines = [row("generation", "chunks/s", "direct", "p50 µs", "p99 µs", "added p50", "added p99")];
    for (const load of loads(options.quick)) {
      const read = throughSidecar(client);
      // One warm-up each: a cold path says nothing about a stream that runs for minutes.
      await measure(straight.read, { ...load, chunks: Math.ceil(load.chunks / 4) });
      await measure(read, { ...load, chunks: Math.ceil(load.chunks / 4) });
      const without = await measure(straight.read, load);
      const through = await measure(read, load);
      const added = { p50_us: through.p50_us - without.p50_us, p99_us: through.p99_us - without.p99_us };
      result[load.name.replaceAll(/[ ,]+/g, "_")] = { direct: without, sidecar: through, added };
      lines.push(
        row(
          load.name,
          through.chunks_per_s,
          without.chunks_per_s,
          through.p50_us,
          through.p99_us,
          added.p50_us,
          added.p99_us,
        ),
      );
      options.progress(lines.at(-1) ?? "");
    }
    straight.close();
    await sidecar.stop();
    return { result: JSON.parse(JSON.stringify(result)), lines };
  },
};

function stubPermissions(folder: string): string[] {
  const isNew = Number(Deno.version.deno.split(".")[1]) >= 9;
  const root = fromFileUrl(new URL("../../", import.meta.url));
  return [
    `--allow-read=${folder},${root}`,
    `--allow-write=${folder}`,
    ...(isNew ? [`--allow-net=unix:${folder}/backend.sock`] : []),
  ];
}

function row(name: string, ...cells: readonly (string | number)[]): string {
  return name.padEnd(22) + cells.map((cell) => String(cell).padStart(11)).join("");
}
