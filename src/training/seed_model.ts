/** The model that a trainer starts from (online-training.md, section 3.4). */
import { errorText } from "../runtime/errors.ts";
import { readFileBounded } from "./atomic_file.ts";
import type { TrainingLog } from "./log.ts";
import { MAX_MODEL_BYTES } from "./onnx_format.ts";
import { readOnnx } from "./onnx_reader.ts";
import { Params } from "./params.ts";
import type { Random } from "./random.ts";
import { readTorchStateDict } from "./torch_seed.ts";
import { parseVersionFile } from "./version_name.ts";

/** Where the initial parameters came from. */
export interface SeedModel {
  readonly params: Params;
  /** False for a fresh model with random parameters, which must not serve. */
  readonly loaded: boolean;
  /** Number of the checkpoint that the seed is, when its name says so. */
  readonly version: number | null;
}

/**
 * Reads the seed model at `path`, an ONNX file or a PyTorch state dict. Whatever is wrong with it is logged and gives a
 * fresh model; it never stops the start.
 */
export async function loadSeedModel(
  path: string,
  nFeatures: number,
  random: Random,
  log: TrainingLog,
): Promise<SeedModel> {
  const fresh = (): SeedModel => ({ params: Params.random(nFeatures, random), loaded: false, version: null });
  let bytes: Uint8Array | undefined;
  try {
    if (path !== "") bytes = await readFileBounded(path, MAX_MODEL_BYTES);
  } catch (thrown) {
    log.error(`base model ${path} cannot be read, starting from a new model: ${errorText(thrown)}`);
    return fresh();
  }
  if (bytes === undefined) {
    log.warn(`Base model not found at '${path}'; starting from a new model`);
    return fresh();
  }
  try {
    const params = path.endsWith(".onnx") ? readOnnx(bytes, nFeatures) : readTorchStateDict(bytes, nFeatures);
    const named = parseVersionFile(path.slice(path.lastIndexOf("/") + 1));
    log.info(`base model ${path} loaded`);
    return { params, loaded: true, version: named?.part === "model" ? named.version : null };
  } catch (thrown) {
    log.error(`base model ${path} does not fit, starting from a new model: ${errorText(thrown)}`);
    return fresh();
  }
}

/** First part of `<base>.<n>`: the configured name, or the base model's file name without its extension, or `online`. */
export function baseModelName(configured: string, path: string): string {
  if (configured !== "") return configured;
  const file = path.slice(path.lastIndexOf("/") + 1);
  const stem = file.replace(/\.[^.]*$/, "");
  return stem === "" ? "online" : stem;
}
