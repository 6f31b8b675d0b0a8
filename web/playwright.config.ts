import { defineConfig } from "@playwright/test";

/** Debian's Chromium; its own calls home would only be refused by the network of a build machine. */
const launchOptions = {
  executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
};

/**
 * Tests are about the desk unless their title says otherwise: `@phone` is for the phone alone, `@both` runs on both.
 * The desk is light and the phone is dark; `looks.spec.ts` sees every page in all four.
 */
export default defineConfig({
  testDir: "tests",
  testMatch: "*.spec.ts",
  fullyParallel: true,
  forbidOnly: true,
  workers: 2,
  // A browser, a hub and real agents share two cores: what fails is tried again, and listed as flaky if it passes then.
  retries: 2,
  timeout: 60_000,
  expect: { timeout: 15_000 },
  reporter: [["list"]],
  outputDir: "test-results",
  use: {
    browserName: "chromium",
    launchOptions,
    locale: "en-GB",
    timezoneId: "UTC",
    trace: "off",
    screenshot: "only-on-failure",
  },
  projects: [
    {
      name: "desk",
      grepInvert: /@phone/,
      use: { viewport: { width: 1440, height: 900 }, colorScheme: "light" },
    },
    {
      name: "phone",
      grep: /@phone|@both/,
      use: {
        viewport: { width: 390, height: 844 },
        deviceScaleFactor: 2,
        isMobile: true,
        hasTouch: true,
        colorScheme: "dark",
      },
    },
  ],
});
