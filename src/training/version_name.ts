/** Numbers and names of checkpoints (online-training.md, sections 3.1 and 6.4). */

/** Name of the version without its extension, e.g. `model_v000042`. */
export function versionName(version: number): string {
  return `model_v${version.toString().padStart(6, "0")}`;
}

/** File name of the model. */
export function modelFileName(version: number): string {
  return `${versionName(version)}.onnx`;
}

/** File name of the digest beside the model. */
export function digestFileName(version: number): string {
  return `${modelFileName(version)}.sha256`;
}

/** File name of the metadata beside the model. */
export function metadataFileName(version: number): string {
  return `${modelFileName(version)}.json`;
}

/** Number in the name of a model, digest or metadata file, and which of them it is; undefined for any other name. */
export function parseVersionFile(name: string): { version: number; part: "model" | "digest" | "metadata" } | undefined {
  const match = /^model_v(\d{6,15})\.onnx(\.sha256|\.json)?$/.exec(name);
  if (match === null) return undefined;
  const version = Number(match[1]);
  // One number must have one name: model_v0000042 is not how this program writes 42.
  if (!name.startsWith(`${versionName(version)}.`)) return undefined;
  return { version, part: match[2] === ".sha256" ? "digest" : match[2] === ".json" ? "metadata" : "model" };
}

/**
 * Number that an operator means by `42`, `v000042`, `model_v000042` or `<base>.42`.
 *
 * @returns undefined when the text is none of them.
 */
export function parseVersionText(text: string, baseName: string): number | undefined {
  const bare = text.startsWith(`${baseName}.`) ? text.slice(baseName.length + 1) : text;
  const match = /^(?:model_v|v)?(\d{1,15})$/.exec(bare);
  return match === null ? undefined : Number(match[1]);
}
