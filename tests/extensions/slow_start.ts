// Between accepting a prompt and showing it pi waits a moment: what a kill takes then, only Quarterdeck has.
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

const WAIT_MS = 100;

export default function (pi: ExtensionAPI) {
	pi.on("agent_start", async () => {
		await new Promise<void>((resolve) => setTimeout(resolve, WAIT_MS));
	});
}
