/** Asks the person before something that cannot be undone, or for one line of text. `Dialogs.svelte` shows it. */
export interface Confirmation {
  title: string;
  text: string;
  /** What the button says: a verb. */
  action: string;
  danger?: boolean;
}

export interface TextQuestion {
  title: string;
  label: string;
  value?: string;
  action?: string;
}

type OpenDialog = ({ kind: "confirm"; question: Confirmation } | { kind: "text"; question: TextQuestion }) & {
  /** Told what was typed, nothing of it where there is nothing to type; or nothing at all when the person does not want it. */
  done: (answer: string | undefined) => void;
};

class Dialogs {
  current = $state.raw<OpenDialog | undefined>();

  ask(open: OpenDialog): void {
    this.close();
    this.current = open;
  }

  close(answer?: string): void {
    const open = this.current;
    this.current = undefined;
    open?.done(answer);
  }
}

export const dialogs = new Dialogs();

/** Resolves to whether the person wants it. */
export function confirm(question: Confirmation): Promise<boolean> {
  return new Promise((resolve) => dialogs.ask({ kind: "confirm", question, done: (answer) => resolve(answer !== undefined) }));
}

/** Resolves to what was typed, or to nothing when the person changed their mind. */
export function askText(question: TextQuestion): Promise<string | undefined> {
  return new Promise((done) => dialogs.ask({ kind: "text", question, done }));
}
