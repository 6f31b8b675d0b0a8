import type { SessionModel } from "@quarterdeck/client";

/**
 * A session as components read it: the fields of its model, made reactive, with at most one change per drawn frame.
 * What is being written, the state and the messages change apart, so that a delta redraws only the end of a page.
 */
export class SessionView {
  readonly model: SessionModel;
  #writing = $state(0);
  #state = $state(0);
  #messages = $state(0);
  #dirty = { writing: false, state: false, messages: false };
  #isAsked = false;
  #stop: () => void;

  constructor(model: SessionModel) {
    this.model = model;
    this.#stop = model.onChange(({ kind }) => {
      this.#dirty.writing = true;
      if (kind !== "delta") this.#dirty.state = true;
      if (kind === "messages" || kind === "all") this.#dirty.messages = true;
      this.#ask();
    });
  }

  #ask(): void {
    if (this.#isAsked) return;
    this.#isAsked = true;
    // A hidden page draws no frames; what it shows when it comes back must not be old.
    if (document.hidden) setTimeout(this.#flush, 100);
    else requestAnimationFrame(this.#flush);
  }

  #flush = (): void => {
    this.#isAsked = false;
    const dirty = this.#dirty;
    this.#dirty = { writing: false, state: false, messages: false };
    if (dirty.writing) this.#writing += 1;
    if (dirty.state) this.#state += 1;
    if (dirty.messages) this.#messages += 1;
  };

  get sessionId(): string {
    return this.model.sessionId;
  }

  get loaded(): SessionModel["loaded"] {
    return this.#state >= 0 && this.model.loaded;
  }

  get error(): SessionModel["error"] {
    return this.#state >= 0 ? this.model.error : undefined;
  }

  get isGone(): boolean {
    return this.#state >= 0 && this.model.isGone;
  }

  get state(): SessionModel["state"] {
    return this.#state >= 0 ? this.model.state : undefined;
  }

  get messages(): SessionModel["messages"] {
    return this.#messages >= 0 ? this.model.messages : [];
  }

  get hasOlder(): boolean {
    return this.#messages >= 0 && this.model.hasOlder;
  }

  get partial(): SessionModel["partial"] {
    return this.#writing >= 0 ? this.model.partial : undefined;
  }

  get tools(): SessionModel["tools"] {
    return this.#writing >= 0 ? this.model.tools : new Map();
  }

  get questions(): SessionModel["questions"] {
    return this.#state >= 0 ? this.model.questions : [];
  }

  get pending(): SessionModel["pending"] {
    return this.#state >= 0 ? this.model.pending : [];
  }

  get notices(): SessionModel["notices"] {
    return this.#state >= 0 ? this.model.notices : [];
  }

  get runnerAway(): boolean {
    return this.#state >= 0 && this.model.runnerAway;
  }

  get terminal(): SessionModel["terminal"] {
    return this.#state >= 0 ? this.model.terminal : undefined;
  }

  /** Grows with every drawn change: read it to be told of anything at all. */
  get revision(): number {
    return this.#writing + this.#state + this.#messages;
  }

  release(): void {
    this.#stop();
    this.model.release();
  }
}
