/**
 * Streams and durable consumers of the lanes (spec/queue.md 1.4 and 1.5): made when they are missing, corrected field by field when
 * somebody made them otherwise, never deleted and made again with their data.
 */
import {
  AckPolicy,
  type ConsumerConfig,
  type ConsumerInfo,
  DiscardPolicy,
  type JetStreamManager,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
  type StreamInfo,
  type StreamUpdateConfig,
} from "@nats-io/jetstream";
import { nanos } from "@nats-io/nats-core";
import { getLogger } from "@logtape/logtape";
import type { NatsSettings } from "../settings/settings.ts";
import { apiError, BrokerCode, hasCode } from "./broker_api.ts";
import { filterCovers, filtersOverlap, type LaneNames } from "./names.ts";
import type { LaneKind } from "./consumer_metrics.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

const MAX_MESSAGES = 100_000;
const POOL_ACK_WAIT_MS = 30_000;
const DIRECT_ACK_WAIT_MS = 300_000;
const NANOSECONDS_PER_MS = 1_000_000;

/** One lane as it is to be. */
export interface LanePlan {
  readonly kind: LaneKind;
  readonly names: LaneNames;
  readonly maxAgeMs: number;
  readonly storage: "memory" | "file";
  readonly replicas: number;
  readonly ackWaitMs: number;
  readonly maxDeliver: number;
  readonly maxAckPending: number;
  /** Leave overlapping consumers alone that somebody uses. */
  readonly conservativeCleanup: boolean;
}

/** The consumer as it is: its own values count, not those of our plan. */
export interface LaneFacts {
  readonly ackWaitMs: number;
  readonly maxAckPending: number;
  /** Messages that wait, and those that are out and unsettled. */
  readonly pending: number;
  readonly ackPending: number;
  /** The broker holds the consumer back until somebody resumes it. */
  readonly paused: boolean;
  /** When the broker made the stream; absent where only the consumer was looked at. */
  readonly streamCreated?: string;
}

/** Plan of a lane after the settings. */
export function lanePlan(kind: LaneKind, names: LaneNames, settings: NatsSettings): LanePlan {
  const { streamMaxAgeMs, maxDeliver } = settings;
  return {
    kind,
    names,
    maxAgeMs: kind === "pool" ? streamMaxAgeMs : Math.max(streamMaxAgeMs, DIRECT_ACK_WAIT_MS * maxDeliver),
    storage: settings.streamStorage,
    replicas: settings.streamReplicas,
    ackWaitMs: kind === "pool" ? POOL_ACK_WAIT_MS : DIRECT_ACK_WAIT_MS,
    maxDeliver,
    maxAckPending: settings.maxAckPending,
    conservativeCleanup: settings.conservativeCleanup,
  };
}

/**
 * Brings a lane's stream and consumer into being and into shape.
 *
 * @throws BrokerError `provision` or `permission`, naming what could not be done and why
 */
export async function ensureLane(api: JetStreamManager, plan: LanePlan): Promise<LaneFacts> {
  const { created } = await ensureStream(api, plan);
  await sweepConsumers(api, plan);
  return { ...factsOf(await ensureConsumer(api, plan)), streamCreated: created };
}

/** When the broker made the lane's stream; undefined when there is none. Throws BrokerError. */
export async function streamCreated(api: JetStreamManager, { names }: LanePlan): Promise<string | undefined> {
  return (await findStream(api, names.stream))?.created;
}

/** Looks the consumer up; undefined when it, or its stream, is not there. Throws BrokerError for everything else. */
export async function lookUpLane(api: JetStreamManager, { names }: LanePlan): Promise<LaneFacts | undefined> {
  try {
    const info = await api.consumers.info(names.stream, names.durable);
    return filterIsRight(info.config, names.filter) ? factsOf(info) : undefined;
  } catch (thrown) {
    if (hasCode(thrown, BrokerCode.consumerNotFound) || hasCode(thrown, BrokerCode.streamNotFound)) return undefined;
    throw apiError(`look up consumer ${names.durable} of ${names.stream}`, thrown);
  }
}

function factsOf(info: ConsumerInfo): LaneFacts {
  return {
    ackWaitMs: (info.config.ack_wait ?? POOL_ACK_WAIT_MS * NANOSECONDS_PER_MS) / NANOSECONDS_PER_MS,
    maxAckPending: info.config.max_ack_pending ?? 0,
    pending: info.num_pending,
    ackPending: info.num_ack_pending,
    paused: (info as { paused?: boolean }).paused === true,
  };
}

async function ensureStream(api: JetStreamManager, plan: LanePlan): Promise<StreamInfo> {
  const { names } = plan;
  let info = await findStream(api, names.stream);
  if (info === undefined) {
    try {
      const made = await api.streams.add(streamConfig(plan) as StreamConfig);
      logger.info("stream {stream} made", { stream: names.stream });
      return made;
    } catch (thrown) {
      if (!hasCode(thrown, BrokerCode.streamNameInUse)) throw apiError(`create stream ${names.stream}`, thrown);
      // Somebody else was faster.
      info = await findStream(api, names.stream);
      if (info === undefined) throw apiError(`create stream ${names.stream}`, thrown);
    }
  }
  for (const { field, wanted, isRight } of streamRepairs(plan)) {
    if (isRight(info.config)) continue;
    logger.warn("stream {stream}: {field} is corrected", { stream: names.stream, field });
    try {
      await api.streams.update(names.stream, wanted);
      info = await api.streams.info(names.stream);
    } catch (thrown) {
      throw apiError(`correct ${field} of stream ${names.stream}`, thrown);
    }
  }
  if (info.config.storage !== storageType(plan)) {
    logger.warn("stream {stream} is kept in {storage}, not in {wanted}; it is left as it is", {
      stream: names.stream,
      storage: info.config.storage,
      wanted: plan.storage,
    });
  }
  return info;
}

async function findStream(api: JetStreamManager, stream: string): Promise<StreamInfo | undefined> {
  try {
    return await api.streams.info(stream);
  } catch (thrown) {
    if (hasCode(thrown, BrokerCode.streamNotFound)) return undefined;
    throw apiError(`look up stream ${stream}`, thrown);
  }
}

function streamConfig(plan: LanePlan): Partial<StreamConfig> {
  return {
    name: plan.names.stream,
    subjects: [plan.names.subject],
    retention: RetentionPolicy.Workqueue,
    storage: storageType(plan),
    max_age: nanos(plan.maxAgeMs),
    max_msgs: MAX_MESSAGES,
    discard: DiscardPolicy.New,
    num_replicas: plan.replicas,
  };
}

function storageType(plan: LanePlan): StorageType {
  return plan.storage === "file" ? StorageType.File : StorageType.Memory;
}

interface Repair {
  readonly field: string;
  readonly wanted: Partial<StreamUpdateConfig>;
  isRight(config: StreamConfig): boolean;
}

/** What is corrected on an existing stream, in this order. */
function streamRepairs(plan: LanePlan): readonly Repair[] {
  const { subject } = plan.names;
  return [
    {
      field: "subjects",
      wanted: { subjects: [subject] },
      isRight: ({ subjects }) => subjects.length === 1 && subjects[0] === subject,
    },
    {
      field: "max_age",
      wanted: { max_age: nanos(plan.maxAgeMs) },
      isRight: (config) => config.max_age === nanos(plan.maxAgeMs),
    },
    {
      field: "discard",
      wanted: { discard: DiscardPolicy.New },
      isRight: (config) => config.discard === DiscardPolicy.New,
    },
    {
      field: "num_replicas",
      wanted: { num_replicas: plan.replicas },
      isRight: (config) => config.num_replicas === plan.replicas,
    },
  ];
}

/** Deletes consumers whose filter overlaps ours: a work queue would not let us make ours beside them. Failures are only logged. */
async function sweepConsumers(api: JetStreamManager, plan: LanePlan): Promise<void> {
  const { names } = plan;
  try {
    for await (const info of api.consumers.list(names.stream)) {
      if (info.name === names.durable || !overlaps(info.config, names.filter)) continue;
      if (plan.conservativeCleanup && (info.num_waiting > 0 || info.num_ack_pending > 0)) {
        logger.warn("consumer {consumer} of {stream} overlaps ours and is in use; it is left alone", {
          consumer: info.name,
          stream: names.stream,
        });
        continue;
      }
      logger.warn("stale consumer {consumer} of {stream} overlaps ours and is deleted", {
        consumer: info.name,
        stream: names.stream,
      });
      await api.consumers.delete(names.stream, info.name);
    }
  } catch (thrown) {
    logger.warn("{error}", { error: apiError(`clean up consumers of ${names.stream}`, thrown).message });
  }
}

function overlaps(config: ConsumerConfig, filter: string): boolean {
  return filtersOf(config).some((other) => filtersOverlap(other, filter));
}

async function ensureConsumer(api: JetStreamManager, plan: LanePlan): Promise<ConsumerInfo> {
  const { names } = plan;
  const found = await findConsumer(api, plan) ?? await createConsumer(api, plan);
  const info = filterIsRight(found.config, names.filter) ? found : await repairFilter(api, plan, found.config);
  if (plan.kind === "pool") warnOfDrift(plan, info.config);
  return info;
}

async function findConsumer(api: JetStreamManager, { names }: LanePlan): Promise<ConsumerInfo | undefined> {
  try {
    return await api.consumers.info(names.stream, names.durable);
  } catch (thrown) {
    if (hasCode(thrown, BrokerCode.consumerNotFound)) return undefined;
    throw apiError(`look up consumer ${names.durable} of ${names.stream}`, thrown);
  }
}

async function createConsumer(api: JetStreamManager, plan: LanePlan): Promise<ConsumerInfo> {
  const { names } = plan;
  try {
    const info = await api.consumers.add(names.stream, consumerConfig(plan));
    logger.info("consumer {consumer} of {stream} made", { consumer: names.durable, stream: names.stream });
    return info;
  } catch (thrown) {
    // Another replica of the lane was faster, with other settings.
    const existing = hasCode(thrown, BrokerCode.consumerExists) ? await findConsumer(api, plan) : undefined;
    if (existing !== undefined) return existing;
    throw apiError(`create consumer ${names.durable} of ${names.stream}`, thrown);
  }
}

function consumerConfig(plan: LanePlan): Partial<ConsumerConfig> {
  return {
    durable_name: plan.names.durable,
    filter_subject: plan.names.filter,
    ack_policy: AckPolicy.Explicit,
    ack_wait: nanos(plan.ackWaitMs),
    max_deliver: plan.maxDeliver,
    max_ack_pending: plan.maxAckPending,
  };
}

function filterIsRight({ filter_subject, filter_subjects }: ConsumerConfig, filter: string): boolean {
  const single = filter_subject ?? "", several = filter_subjects ?? [];
  return single === filter ? several.length === 0 : single === "" && several.length === 1 && several[0] === filter;
}

/**
 * Gives our consumer our filter again. The broker lets a filter be changed, but what the consumer has gone past under the old one it
 * never delivers: unless the old one covered ours, that would leave work in the stream that nobody gets.
 */
async function repairFilter(api: JetStreamManager, plan: LanePlan, config: ConsumerConfig): Promise<ConsumerInfo> {
  const { names } = plan;
  logger.warn("consumer {consumer} of {stream} has a foreign filter; it is corrected", {
    consumer: names.durable,
    stream: names.stream,
  });
  if (filtersOf(config).some((filter) => filterCovers(filter, names.filter))) {
    try {
      // The client merges this over the present configuration: an absent list has to be said.
      const wanted = { filter_subject: names.filter, filter_subjects: undefined };
      return await api.consumers.update(names.stream, names.durable, wanted as unknown as Partial<ConsumerConfig>);
    } catch (thrown) {
      logger.warn("{error}; it is made anew", {
        error: apiError(`correct the filter of consumer ${names.durable}`, thrown).message,
      });
    }
  }
  try {
    await api.consumers.delete(names.stream, names.durable);
  } catch (thrown) {
    if (!hasCode(thrown, BrokerCode.consumerNotFound)) throw apiError(`delete consumer ${names.durable}`, thrown);
  }
  return await createConsumer(api, plan);
}

/** A consumer's filters; one that is empty when it takes everything. */
function filtersOf({ filter_subject, filter_subjects }: ConsumerConfig): readonly string[] {
  return filter_subjects !== undefined && filter_subjects.length > 0 ? filter_subjects : [filter_subject ?? ""];
}

/** What was last said about each lane, so that the same difference is not repeated every round. */
const saidOfDrift = new WeakMap<LanePlan, string>();

function warnOfDrift(plan: LanePlan, config: ConsumerConfig): void {
  const differences = [
    ["max_deliver", config.max_deliver, plan.maxDeliver],
    ["ack_wait", config.ack_wait, nanos(plan.ackWaitMs)],
    ["max_ack_pending", config.max_ack_pending, plan.maxAckPending],
  ].filter(([, is, wanted]) => is !== wanted).map(([field, is, wanted]) => `${field} is ${is}, not ${wanted}`);
  const text = differences.join("; ");
  if (text === (saidOfDrift.get(plan) ?? "")) return;
  saidOfDrift.set(plan, text);
  if (text === "") return;
  logger.warn("consumer {consumer} differs from the settings and is left as it is: {differences}", {
    consumer: plan.names.durable,
    differences: text,
  });
}
