// The console as an operator uses it. Arguments come in the environment: CONSOLE_URL, CONSOLE_TOKEN, CHROMIUM, and
// SCREENSHOTS, a directory. Ends with status 0 and one line for each flow, or says what is wrong.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const { CONSOLE_URL: url, CONSOLE_TOKEN: token, CHROMIUM: executablePath, SCREENSHOTS: shots } = process.env;
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const viewport = { width: 1280, height: 800 };

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

/** A browser window whose pages may have no error, also none of the content security policy. */
async function open(options) {
  const context = await browser.newContext({ viewport, baseURL: url, ...options });
  const page = await context.newPage();
  page.errors = [];
  page.on("pageerror", (error) => page.errors.push(error.message));
  page.on("console", (line) => line.type() === "error" && page.errors.push(line.text()));
  page.on("dialog", (dialog) => page.errors.push(`a dialog: ${dialog.message()}`));
  await page.goto("/");
  await page.getByLabel("Your name, for the audit").fill("anna");
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Failure groups" }).waitFor();
  return page;
}

/** No serious barrier, in light and in dark. The checks run in a context that the policy of the page does not bind. */
async function look(page, name) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: join(shots, `${name}-${colorScheme}.png`) });
    await page.evaluate((await import("node:fs")).readFileSync(axe, "utf8"));
    const { violations } = await page.evaluate(() => globalThis.axe.run(document));
    const serious = violations.filter((it) => ["serious", "critical"].includes(it.impact));
    const said = serious.map((it) => `${it.id}: ${it.nodes.map((node) => node.html).join(" ")}`);
    assert.deepEqual(said, [], `${name}, ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: "light" });
}

async function confirm(page, act, letters, reason) {
  await page.getByRole("heading", { name: `${act} ${letters} dead letters?` }).waitFor();
  await page.getByLabel("Reason, kept in the audit").fill(reason);
  await page.getByLabel("Type the number of dead letters").fill(String(letters));
  await page.getByRole("button", { name: `${act} ${letters}` }).click();
}

/** By hand where no script does it. */
async function done(page, scripts) {
  for (let tries = 0; tries < 120; tries++) {
    if (await page.locator("dd .state.done").count()) return;
    await page.waitForTimeout(250);
    if (!scripts) await page.reload();
  }
  assert.fail("the operation is not done");
}

async function findTheCause(page) {
  await look(page, "groups");
  await page.getByRole("link", { name: "no warehouse", exact: false }).first().click();
  await page.getByRole("heading", { name: "Messages" }).waitFor();
  assert.match(await page.getByRole("status").textContent(), /^12 dead letters fit/);
  await look(page, "messages");
  await page.getByRole("table").getByRole("link").first().click();
  await page.getByRole("heading", { name: "Message", exact: true }).waitFor();
  assert.match(await page.locator("dl.facts").first().textContent(), /no warehouse/);
  await page.getByRole("link", { name: "SekaliDeadLetterBurst" }).click();
  await page.getByText("## Meaning").waitFor();
}

async function replayAGroup(page, cause, letters, scripts) {
  await page.goto("/");
  await page.getByRole("row", { name: cause }).getByRole("link", { name: "Replay this group" }).click();
  if (scripts) {
    await page.getByLabel("Type the number of dead letters").fill(String(letters + 1));
    assert(await page.getByRole("button", { name: `Replay ${letters}` }).isDisabled(), "another number");
    await look(page, "preview");
  }
  await confirm(page, "Replay", letters, "repaired");
  await page.getByRole("heading", { name: /Operation \d+: replay/ }).waitFor();
  await done(page, scripts);
  if (scripts) await look(page, "operation");
}

async function discardAndRestore(page) {
  await page.goto("/messages?state=open");
  await page.getByLabel("Choose all on this page").check();
  const letters = await page.locator("input[name=id]:checked").count();
  await page.getByRole("button", { name: "Discard chosen" }).click();
  await confirm(page, "Discard", letters, "the order was cancelled");
  await done(page, true);
  await page.goto("/messages?state=discarded");
  await page.getByRole("link", { name: `Restore all ${letters} that fit` }).click();
  await confirm(page, "Restore", letters, "it was not");
  await done(page, true);
  await page.goto("/audit?who=anna");
  for (const reason of ["the order was cancelled", "it was not"]) {
    assert.equal(await page.getByRole("cell", { name: reason }).count(), letters);
  }
  await look(page, "audit");
  await page.goto("/operations");
  await look(page, "operations");
}

async function readAMessage(page) {
  await page.goto("/messages?class=invalid&state=any");
  await page.getByRole("table").getByRole("link").first().click();
  const payload = page.getByLabel("Payload");
  assert.match(await payload.textContent(), /"nr": 12345678901234567890,\n/);
  assert.match(await page.getByLabel("Headers").textContent(), /<script>/);
  assert.match(await page.locator("dl.facts").textContent(), /0af7651916cd43dd8448eb211c80319c/);
  await look(page, "message");
  await page.getByRole("link", { name: "Hex" }).click();
  assert.match(await payload.textContent(), /^00000000 {2}7b 22/);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "Download" }).click(),
  ]);
  assert.match(download.suggestedFilename(), /\.bin$/);
}

try {
  const page = await open({});
  for (const [name, flow] of [
    ["find the cause", () => findTheCause(page)],
    ["replay a group", () => replayAGroup(page, /no warehouse/, 12, true)],
    ["discard and restore", () => discardAndRestore(page)],
    ["read a message", () => readAMessage(page)],
  ]) {
    await flow();
    assert.deepEqual(page.errors, [], name);
    console.log(`ok: ${name}`);
  }
  const plain = await open({ javaScriptEnabled: false });
  await replayAGroup(plain, /a price of/, 5, false);
  console.log("ok: replay a group without JavaScript");
} finally {
  await browser.close();
}
