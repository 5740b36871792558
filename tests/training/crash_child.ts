/**
 * Child of crash_test.ts: publishes and marks versions in a folder, and stops for ever at one step of one write, saying so.
 * Arguments: folder, number of the write step to stop at, seed.
 */
import { systemClock } from "../../src/runtime/clock.ts";
import { CheckpointStore } from "../../src/training/checkpoint_store.ts";
import { seededRandom } from "../../src/training/random.ts";
import { someParams } from "./support.ts";

const [folder = "", stopAt = "", seed = ""] = Deno.args;
let steps = 0;
const say = (line: string) => Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
const store = await CheckpointStore.open({
  folder,
  baseName: "online",
  nFeatures: 3,
  producerVersion: "0",
  readOnly: false,
  clock: systemClock,
  random: seededRandom(Number(seed)),
  log: { info() {}, warn() {}, error() {} },
  hook(file, step) {
    if (++steps < Number(stopAt)) return;
    say(`stopped at ${file} ${step}`);
    // Nothing more happens here; the parent ends the process.
    return new Promise(() => setInterval(() => {}, 60_000));
  },
});
for (let round = 0;; round++) {
  const { metadata } = await store.publish({
    params: someParams(Number(seed) * 100 + round),
    step: round,
    samplesTotal: round,
    parent: null,
  });
  say(`published ${metadata.version} ${metadata.sha256}`);
  await store.mark(metadata.version, (before) => ({ ...before, state: "stable", reason: `judged in ${seed}` }));
  say(`marked ${metadata.version}`);
}
