/** Every part of the benchmark. Keep the list sorted. */
import type { BenchPart } from "../lib/part.ts";
import { batchTime } from "./batch_time.ts";
import { generation } from "./generation.ts";
import { hotPath } from "./hot_path.ts";
import { ipc } from "./ipc.ts";
import { training } from "./training.ts";
import { wire } from "./wire.ts";

/** In the order in which they run. */
export const allParts: readonly BenchPart[] = [hotPath, batchTime, generation, ipc, training, wire];
