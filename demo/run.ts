/** The run from start to end. */
import { LocalIngestClient } from "../src/client/client.ts";
import { sleep, systemClock } from "../src/runtime/clock.ts";
import { Children } from "./child.ts";
import type { Entrance } from "./entrance.ts";
import { Interrupted } from "./failure.ts";
import { Gateway } from "./gateway.ts";
import { showGeneration } from "./generation.ts";
import { readBatchSizes } from "./measure.ts";
import { showEntities, showFigures, showMatches } from "./report.ts";
import type { Screen } from "./screen.ts";
import { LANE, loadModels, type Places, placesIn, startBackend, startNats, startSidecar } from "./services.ts";
import { readQueries, readSentences } from "./texts.ts";
import { doWork, MODELS, seconds } from "./work.ts";

/** A start that takes longer than this is explained. */
const SLOW_START_MS = 3_000;
/** How much later than its closed connections the end of a program may be seen. */
const CRASH_NOTICE_MS = 500;

/** A run that can be cut short. */
export class DemoRun {
  readonly #end = new AbortController();
  readonly #children = new Children((failure) => this.#end.abort(failure));
  readonly #screen: Screen;
  readonly #useNats: boolean;

  /** @param useNats work goes through a broker instead of the local socket */
  constructor(screen: Screen, useNats: boolean) {
    this.#screen = screen;
    this.#useNats = useNats;
  }

  /** Ends the run early; what was started is ended in order. The second time it is killed. */
  interrupt(): void {
    if (this.#end.signal.reason instanceof Interrupted) this.#children.killAll();
    else this.#end.abort(new Interrupted());
  }

  /**
   * Starts everything, sends the work, shows what came of it and ends everything again, whatever happens.
   *
   * @throws DemoFailure or Interrupted (rejection)
   */
  async toEnd(): Promise<void> {
    const places = placesIn(await Deno.makeTempDir({ prefix: "wsd" }));
    const { signal } = this.#end;
    let failure: { readonly reason: unknown } | undefined;
    try {
      await runWith(places, this.#useNats, this.#children, this.#screen, signal);
    } catch (thrown) {
      // A program that has ended makes calls fail: it is the cause, they are the consequence, but they may be seen first.
      await sleep(systemClock, CRASH_NOTICE_MS, signal);
      failure = { reason: signal.aborted ? signal.reason : thrown };
    }
    const [stopFailure] = await this.#children.stopAll();
    await Deno.remove(places.folder, { recursive: true });
    if (failure !== undefined) throw failure.reason;
    if (stopFailure !== undefined) throw stopFailure;
  }
}

async function runWith(
  places: Places,
  useNats: boolean,
  children: Children,
  screen: Screen,
  signal: AbortSignal,
): Promise<void> {
  const sentences = readSentences(await readText("sentences.txt"));
  const queries = readQueries(await readText("queries.txt"));
  const natsUrl = useNats
    ? await timed(screen, "nats-server", "with JetStream", () => startNats(places, children, signal))
    : undefined;
  await timed(screen, "backend", `${Object.keys(MODELS).length} small models`, async () => {
    await startBackend(places, children, signal);
    await loadModels(places, Object.values(MODELS), signal);
  });
  const ingest = natsUrl === undefined ? "takes work from a Unix socket" : "takes work from JetStream";
  await timed(screen, "sidecar", ingest, () => startSidecar(places, natsUrl, children, signal));

  const entrance: Entrance = natsUrl === undefined
    ? new LocalIngestClient({ socketPath: places.ingestSocket, route: LANE })
    : await Gateway.connect(natsUrl, LANE);
  try {
    const findings = await doWork(entrance, sentences, queries, screen, signal);
    const items = [...findings.timings.values()].reduce((sum, { latenciesMs }) => sum + latenciesMs.length, 0);
    const batches = await readBatchSizes(places.traceFile, items, signal);
    showMatches(screen, findings);
    showEntities(screen, findings);
    showFigures(screen, findings, batches);
    await showGeneration(entrance, screen, signal);
  } finally {
    await entrance.close();
  }
}

/** Starts something and says how long that took; says why when it takes long. */
async function timed<T>(screen: Screen, label: string, what: string, start: () => Promise<T>): Promise<T> {
  const began = systemClock.now();
  const cancel = systemClock.after(SLOW_START_MS, () => {
    screen.step(label, "is still starting: the first run downloads packages");
  });
  try {
    const started = await start();
    screen.step(label, `${what}, ready after ${seconds(systemClock.now() - began)}`);
    return started;
  } finally {
    cancel();
  }
}

async function readText(name: string): Promise<string> {
  return await Deno.readTextFile(new URL(name, import.meta.url));
}
