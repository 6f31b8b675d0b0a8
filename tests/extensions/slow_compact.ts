// Compaction waits until somebody aborts it.
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

export default function (pi: ExtensionAPI) {
	pi.on("session_before_compact", async (event) => {
		await new Promise<void>((resolve) => event.signal.addEventListener("abort", () => resolve(), { once: true }));
	});
}
