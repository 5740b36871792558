/** The limits of local ingest (spec/local-ingest.md 3 to 11). Constants of the protocol: no setting changes them. */

const MIB = 1024 * 1024;
/** Body of one frame, both ways. */
const FRAME_BYTES = 64 * MIB;
/** What a `cancel` may use when the bytes for data are used up. */
const CONTROL_RESERVE_BYTES = 1024;
const FRAME_HEADER_BYTES = 4;

/** Bytes unless the name says otherwise. */
export const IngestLimits = {
  frameBytes: FRAME_BYTES,
  frameHeaderBytes: FRAME_HEADER_BYTES,
  imageOrDocumentBytes: 16 * MIB,
  audioBytes: 24 * MIB,
  workItemsPerCall: 4096,
  generateStreamsPerConnection: 64,
  pendingWritesPerConnection: 80,
  dataOperationsPerConnection: 80,
  controlOperationsPerConnection: 1,
  decodingFramesPerConnection: 1,
  /** Frames waiting to be written, headers included. */
  bufferedWriteBytes: FRAME_BYTES + FRAME_HEADER_BYTES,
  /** Request bodies of data operations, from their reading to the write of their last answer. */
  retainedRequestBytes: FRAME_BYTES,
  controlReserveBytes: CONTROL_RESERVE_BYTES,
  /** All request bodies, the one being decoded and `cancel` included. */
  bufferedRequestBytes: FRAME_BYTES + CONTROL_RESERVE_BYTES,
  /** One answer: waiting for room, queueing and writing together. */
  writeTimeoutMs: 5000,
  cancelRpcTimeoutMs: 5000,
  /** Wait for the backend's stream to end after a cancel. */
  drainTimeoutMs: 5000,
  digestBytes: 32,
  requestIdBytes: 128,
  publishWorkTimeoutDefaultMs: 300_000,
  publishWorkTimeoutMaxMs: 300_000,
  redeliveryAttempts: 3,
  retryDelayCapMs: 5000,
  /** A longer trace field counts as absent. */
  traceStringDecodeBytes: 512,
  traceparentUsedBytes: 256,
  tracestateUsedBytes: 512,
} as const;
