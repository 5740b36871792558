import { SidecarError } from "../runtime/errors.ts";

/** A batch configuration that cannot be used. The message names the field, its rule and the value. */
export class BatchConfigError extends SidecarError {
  constructor(message: string) {
    super("batch_config_invalid", message);
  }
}

/** An item that cannot be queued: a broken cost, or it waits already. A mistake in the caller; nothing was queued. */
export class UnschedulableItemError extends SidecarError {
  constructor(message: string) {
    super("unschedulable_item", message);
  }
}

/** The scheduler has finished draining and takes nothing more. The caller still owns the items and must settle them. */
export class SchedulerClosedError extends SidecarError {
  constructor(modelId: string) {
    super("scheduler_closed", `the scheduler of model '${modelId}' is closed`);
  }
}
