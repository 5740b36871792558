/** What several backend processes say, as one answer (spec/ipc.md 1.11, spec/live-config.md 5.3). */
import type { WorkerCapabilities } from "../wire/ipc/heartbeat.ts";
import type { ModelConfigAnswer } from "../wire/ipc/model_config.ts";

/** Sorted union without duplicates. */
export function union(lists: Iterable<readonly string[]>): string[] {
  const all = new Set<string>();
  for (const list of lists) for (const entry of list) all.add(entry);
  return [...all].sort(byCodePoint);
}

/** Lists are united; a "supports" flag is true only when it is true everywhere. */
export function mergeCapabilities(answers: readonly WorkerCapabilities[]): WorkerCapabilities {
  const some = answers.length > 0;
  return {
    supportsExecutionAuthorityV1: some && answers.every((answer) => answer.supportsExecutionAuthorityV1),
    supportsNumericalAdmissionV1: some && answers.every((answer) => answer.supportsNumericalAdmissionV1),
    hasGenerationModels: answers.some((answer) => answer.hasGenerationModels),
    generationModels: union(answers.map((answer) => answer.generationModels)),
    supportedModels: union(answers.map((answer) => answer.supportedModels)),
    loadedModels: union(answers.map((answer) => answer.loadedModels)),
  };
}

/**
 * Applied only when all applied, all non-empty hashes agree, and all report the same applied models and profiles. The hash is the
 * first non-empty one, the version the highest, the lists are united.
 */
export function mergeConfigAnswers(answers: readonly ModelConfigAnswer[]): ModelConfigAnswer {
  const hashes = answers.map((answer) => answer.bundleConfigHash).filter((hash) => hash !== "");
  const first = answers[0];
  return {
    applied: first !== undefined &&
      answers.every((answer) =>
        answer.applied &&
        sameSet(answer.appliedModels, first.appliedModels) &&
        sameSet(answer.appliedProfiles, first.appliedProfiles)
      ) &&
      hashes.every((hash) => hash === hashes[0]),
    bundleConfigHash: hashes[0] ?? "",
    configVersion: answers.reduce((highest, answer) => Math.max(highest, answer.configVersion), 0),
    appliedModels: union(answers.map((answer) => answer.appliedModels)),
    appliedProfiles: union(answers.map((answer) => answer.appliedProfiles)),
    unsupportedModels: union(answers.map((answer) => answer.unsupportedModels)),
  };
}

function sameSet(a: readonly string[], b: readonly string[]): boolean {
  const left = union([a]);
  const right = union([b]);
  return left.length === right.length && left.every((entry, at) => entry === right[at]);
}

/** The order of UTF-8 bytes, which the peers sort by; JavaScript's own order differs beyond the basic plane. */
function byCodePoint(a: string, b: string): number {
  const left = [...a], right = [...b];
  for (let at = 0; at < left.length && at < right.length; at++) {
    const difference = (left[at]?.codePointAt(0) ?? 0) - (right[at]?.codePointAt(0) ?? 0);
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}
