/** Pulls 100,000 times in vain and prints how much the heap has grown: a program of its own, for it needs the garbage collector. */
import { printLine } from "../../scripts/lib/print.ts";
import { Played } from "./played_loop.ts";
import { settle } from "../sim/virtual_clock.ts";

const collect = (globalThis as { gc?: () => void }).gc;
if (collect === undefined) throw new Error("start this with --v8-flags=--expose-gc");

const played = new Played();
let asked = 0;

async function pull(times: number): Promise<number> {
  for (let i = 0; i < times; i++) {
    played.status(408, "Request Timeout", played.last.batch);
    await Promise.resolve();
    if (i % 1_000 === 0) await settle();
    // What the test keeps is not the loop's.
    if (played.asked.length > 1_000) asked += played.asked.splice(0, played.asked.length - 1).length;
  }
  collect?.();
  return Deno.memoryUsage().heapUsed;
}

const WARM_UP = 10_000;
const PULLS = 100_000;
const before = await pull(WARM_UP);
const after = await pull(PULLS - WARM_UP);
played.loop.close();
printLine(JSON.stringify({ pulls: PULLS, asked: asked + played.asked.length, grownBytes: after - before }));
