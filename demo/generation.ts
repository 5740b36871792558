/** One generation, shown as it arrives. */
import { LocalIngestError } from "../src/client/errors.ts";
import type { GenerateRequest } from "../src/client/requests.ts";
import { sleep, systemClock } from "../src/runtime/clock.ts";
import type { Entrance, TextChunk } from "./entrance.ts";
import { DemoFailure } from "./failure.ts";
import { percentile } from "./measure.ts";
import type { Screen } from "./screen.ts";
import { MODELS } from "./work.ts";

const PROMPT = "The river rose";
const MOST_WORDS = 60;
/** A model that is being loaded refuses a generation at once; its caller asks again. */
const LOADING_WAIT_MS = 100;
const LOADING_ATTEMPTS = 100;

const REQUEST: GenerateRequest = {
  model: MODELS.generate,
  parameters: { prompt: PROMPT, max_new_tokens: MOST_WORDS, temperature: 0.8, seed: 7 },
};

/** Runs a generation and writes its text piece by piece. */
export async function showGeneration(entrance: Entrance, screen: Screen, signal: AbortSignal): Promise<void> {
  screen.title("A text as it is generated, by a Markov chain: do not expect sense");
  const start = systemClock.now();
  const arrivals: number[] = [];
  let text = "";
  let last: TextChunk | undefined;
  screen.flow(`${PROMPT} `);
  for await (const chunk of whenLoaded(entrance, signal)) {
    if (chunk.textDelta !== "") arrivals.push(systemClock.now());
    screen.flow(chunk.textDelta);
    text += chunk.textDelta;
    last = chunk;
  }
  screen.endFlow();
  if (last?.finishReason !== "length" && last?.finishReason !== "stop") {
    throw new DemoFailure(`the generation ended with ${last?.finishReason ?? "nothing"}`);
  }
  const gaps = arrivals.slice(1).map((at, index) => at - (arrivals[index] ?? at));
  const first = Math.round((arrivals[0] ?? NaN) - start);
  screen.line(
    `  ${
      text.split(/\s+/u).filter((word) => word !== "").length
    } words in ${arrivals.length} chunks: the first after ${first} ms, the others ` +
      `${Math.round(percentile(gaps, 50))} ms apart (median)`,
  );
}

/** The chunks of the generation; asks again while the model is being loaded. */
async function* whenLoaded(entrance: Entrance, signal: AbortSignal): AsyncGenerator<TextChunk, void, undefined> {
  for (let attempt = 1;; attempt++) {
    let loading = false;
    try {
      for await (const chunk of entrance.generate(REQUEST, signal)) {
        loading = isLoading(chunk);
        if (!loading) yield chunk;
      }
    } catch (thrown) {
      if (!(thrown instanceof LocalIngestError) || thrown.reason !== "MODEL_LOADING") throw thrown;
      loading = true;
    }
    if (!loading) return;
    if (attempt === LOADING_ATTEMPTS) throw new DemoFailure(`the model ${REQUEST.model} was not loaded in time`);
    await sleep(systemClock, LOADING_WAIT_MS, signal);
    signal.throwIfAborted();
  }
}

function isLoading(chunk: TextChunk): boolean {
  const { error } = chunk.fields;
  return chunk.done && typeof error === "object" && error !== null && "code" in error && error.code === "MODEL_LOADING";
}
