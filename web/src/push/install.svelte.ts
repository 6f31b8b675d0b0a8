/** Whether the app can be put on this device's home screen, and how. */

/** Not in the standard library of types: only Chromium has it. */
interface InstallPromptEvent extends Event {
  prompt(): Promise<void>;
  readonly userChoice: Promise<{ outcome: "accepted" | "dismissed" }>;
}

function isInstallPrompt(event: Event): event is InstallPromptEvent {
  return "prompt" in event && typeof event.prompt === "function";
}

class Install {
  #offer = $state.raw<InstallPromptEvent | undefined>();
  #installed = $state(false);

  /** The browser would install it now. */
  get offered(): boolean {
    return this.#offer !== undefined;
  }

  /** We run as an app of our own. */
  get installed(): boolean {
    return this.#installed || matchMedia("(display-mode: standalone)").matches;
  }

  /** Safari on phones and tablets says nothing; people do it by hand there. */
  get byHand(): boolean {
    const isTouchMac = navigator.userAgent.includes("Macintosh") && navigator.maxTouchPoints > 1;
    return /iPhone|iPad|iPod/.test(navigator.userAgent) || isTouchMac;
  }

  /** Keeps the browser's offer for the settings instead of showing it over the page. */
  watch(): void {
    addEventListener("beforeinstallprompt", (event) => {
      if (!isInstallPrompt(event)) return;
      event.preventDefault();
      this.#offer = event;
    });
    addEventListener("appinstalled", () => {
      this.#offer = undefined;
      this.#installed = true;
    });
  }

  /** Asks the browser to install the app. An offer can be taken once. */
  async accept(): Promise<void> {
    const offer = this.#offer;
    this.#offer = undefined;
    if (!offer) return;
    await offer.prompt();
    await offer.userChoice;
  }
}

export const install = new Install();
