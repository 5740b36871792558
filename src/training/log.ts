/** Where the trainer's messages go: one line for people, at three levels. */
export interface TrainingLog {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}
