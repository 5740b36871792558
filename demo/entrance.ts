/** A way into the sidecar: the local socket, or a gateway's way over NATS. The client of local ingest is one as it is. */
import type { GenerateRequest, WorkRequest } from "../src/client/requests.ts";
import type { ReadValue } from "../src/client/values.ts";
import type { WorkResult } from "../src/wire/work_result_reader.ts";

/** A piece of a generated text. */
export interface TextChunk {
  readonly textDelta: string;
  readonly done: boolean;
  /** `stop`, `length`, `cancelled`, `error`, …; in the last chunk. */
  readonly finishReason: string | undefined;
  /** Everything that was sent. */
  readonly fields: { readonly [key: string]: ReadValue };
}

/** What the demonstration asks of the sidecar. */
export interface Entrance {
  /** Runs a batch; one result per input, in their order. */
  publishWork(request: WorkRequest, signal?: AbortSignal): Promise<WorkResult[]>;
  /** Runs a generation. */
  generate(request: GenerateRequest, signal?: AbortSignal): AsyncIterable<TextChunk>;
  close(): void | Promise<void>;
}
