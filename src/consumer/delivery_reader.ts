/**
 * From a broker message to a delivery that dispatch can take: the checks that come before anything in the message is trusted
 * (spec/queue.md 5.1, rows 1 to 5 and 11). What fails one of them is settled here.
 */
import { getLogger } from "@logtape/logtape";
import type { FinalSituation } from "../dispatch/settle_by.ts";
import { settleBy } from "../dispatch/settle_by.ts";
import { errorText } from "../runtime/errors.ts";
import { MsgpackReader } from "../wire/msgpack/reader.ts";
import { readWorkItem, WorkItem } from "../wire/work_item.ts";
import type { BrokerMessage } from "./broker_connection.ts";
import { foreignWorkHeader, isLiteralSubject, isSafeReplySubject } from "./guards.ts";
import { type DeliveryHost, JetStreamDelivery } from "./jetstream_delivery.ts";
import { modelOf, parseWorkSubject, type WorkSubject } from "./names.ts";
import { isPublishable } from "./outbox.ts";

const logger = getLogger(["worker-sidecar", "consumer"]);

/** Stands in for the work of a message that has none. */
const NO_WORK = new WorkItem(new Uint8Array(0));

/** Subjects repeat: there is one per model of the lane. Beyond this number they are parsed each time. */
const CACHED_SUBJECTS = 1024;

/** Rules of the reader. */
export interface ReaderRules {
  /** Base delay of a NAK in milliseconds. */
  readonly nakDelayMs: number;
  /** `SIE_COMPAT=reference`. */
  readonly reference: boolean;
}

/** Safe, and a subject that can be published to without harm: the broker takes what follows a bad one for commands. */
function canReplyTo(subject: string): boolean {
  return isSafeReplySubject(subject) && isPublishable(subject) && isLiteralSubject(subject);
}

/** Reads the messages of one lane. */
export class DeliveryReader {
  readonly #host: DeliveryHost;
  readonly #rules: ReaderRules;
  readonly #subjects = new Map<string, WorkSubject>();

  constructor(host: DeliveryHost, rules: ReaderRules) {
    this.#host = host;
    this.#rules = rules;
  }

  /**
   * Makes a delivery of a message; undefined when it was refused and has been settled.
   *
   * @param ackSubject the message's reply subject
   * @param now clock time of arrival, milliseconds
   */
  read(message: BrokerMessage, ackSubject: string, now: number): JetStreamDelivery | undefined {
    const { data } = message;
    try {
      const { headers } = message;
      const foreign = headers === undefined ? undefined : foreignWorkHeader(headers.keys());
      if (foreign !== undefined) {
        return this.#refuse("foreign_header", data.length, ackSubject, now, `header ${foreign}`);
      }
    } catch (thrown) {
      // The client reads headers only now, and does not take all that a server lets through.
      return this.#refuse("undecodable", data.length, ackSubject, now, `headers: ${errorText(thrown)}`);
    }
    const subject = this.#subjectOf(message.subject);
    if (subject === undefined) {
      return this.#refuse("bad_subject", data.length, ackSubject, now, `subject ${message.subject}`);
    }
    let work: WorkItem;
    try {
      work = readWorkItem(new MsgpackReader(data));
    } catch (thrown) {
      return this.#refuse("undecodable", data.length, ackSubject, now, errorText(thrown));
    }
    const { replySubject } = work;
    if (replySubject !== "" && !canReplyTo(replySubject)) {
      const shown = JSON.stringify(replySubject.slice(0, 100));
      return this.#refuse("unsafe_reply", data.length, ackSubject, now, `reply subject ${shown}`);
    }
    if (work.modelId !== subject.model) this.#takeModel(work, subject);
    return new JetStreamDelivery(this.#host, work, ackSubject, subject.workerDirect, data.length, now);
  }

  /** Settles a message without looking into it. */
  turnAway(message: BrokerMessage, ackSubject: string, now: number, situation: FinalSituation): void {
    this.#settle(situation, message.data.length, ackSubject, now);
  }

  #takeModel(work: WorkItem, subject: WorkSubject): void {
    const model = modelOf(subject, work.modelId, this.#rules.reference);
    if (model === work.modelId) return;
    logger.warn("{item} names model {named}, its subject {model}: the subject counts", {
      item: work.workItemId,
      named: work.modelId,
      model,
    });
    work.modelId = model;
  }

  #subjectOf(text: string): WorkSubject | undefined {
    const known = this.#subjects.get(text);
    if (known !== undefined) return known;
    const parsed = parseWorkSubject(text);
    if (parsed !== undefined && this.#subjects.size < CACHED_SUBJECTS) this.#subjects.set(text, parsed);
    return parsed;
  }

  #refuse(situation: FinalSituation, bytes: number, ackSubject: string, now: number, why: string): undefined {
    logger.warn("a message of the {lane} lane is refused ({situation}): {why}", {
      lane: this.#host.lane,
      situation,
      why,
    });
    this.#settle(situation, bytes, ackSubject, now);
  }

  #settle(situation: FinalSituation, bytes: number, ackSubject: string, now: number): void {
    const delivery = new JetStreamDelivery(this.#host, NO_WORK, ackSubject, false, bytes, now);
    settleBy(delivery, situation, { baseMs: this.#rules.nakDelayMs });
  }
}
