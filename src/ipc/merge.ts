/** What several backend processes say, as one answer (spec/ipc.md 1.11, spec/live-config.md 5.3). */
import { sortedUnion } from "../runtime/sorted_union.ts";
import type { WorkerCapabilities } from "../wire/ipc/heartbeat.ts";
import type { ModelConfigAnswer } from "../wire/ipc/model_config.ts";

/** Lists are united; a "supports" flag is true only when it is true everywhere. */
export function mergeCapabilities(answers: readonly WorkerCapabilities[]): WorkerCapabilities {
  const some = answers.length > 0;
  return {
    supportsExecutionAuthorityV1: some && answers.every((answer) => answer.supportsExecutionAuthorityV1),
    supportsNumericalAdmissionV1: some && answers.every((answer) => answer.supportsNumericalAdmissionV1),
    hasGenerationModels: answers.some((answer) => answer.hasGenerationModels),
    generationModels: sortedUnion(answers.map((answer) => answer.generationModels)),
    supportedModels: sortedUnion(answers.map((answer) => answer.supportedModels)),
    loadedModels: sortedUnion(answers.map((answer) => answer.loadedModels)),
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
    appliedModels: sortedUnion(answers.map((answer) => answer.appliedModels)),
    appliedProfiles: sortedUnion(answers.map((answer) => answer.appliedProfiles)),
    unsupportedModels: sortedUnion(answers.map((answer) => answer.unsupportedModels)),
  };
}

function sameSet(a: readonly string[], b: readonly string[]): boolean {
  const left = sortedUnion([a]);
  const right = sortedUnion([b]);
  return left.length === right.length && left.every((entry, at) => entry === right[at]);
}
