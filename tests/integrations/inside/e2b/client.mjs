// What E2B's client for JavaScript does at a server of sandboxes; prints a line of JSON for each step.
import { Sandbox } from "@e2b/code-interpreter";

const say = value => console.log(JSON.stringify(value));
const sandbox = await Sandbox.create({ metadata: { of: "node" }, envs: { GIVEN: "1" } });
const seen = [];
const code = "print('out')\ndisplay({'text/html': '<b>x</b>'}, raw=True)\n40 + 2";
const done = await sandbox.runCode(code, { onStdout: each => seen.push(each.line), onResult: each => seen.push(each.html ?? each.text) });
say([done.text, seen]);
say((await sandbox.runCode("1/0")).error.name);
const context = await sandbox.createCodeContext({ cwd: "/tmp" });
say((await sandbox.runCode("import os; os.getcwd()", { context })).text);
say((await sandbox.listCodeContexts()).some(each => each.id === context.id));
await sandbox.removeCodeContext(context);
say((await sandbox.runCode("let n = 6; n * 7", { language: "javascript" })).text);
await sandbox.files.write([{ path: "a.txt", data: "one" }, { path: "b.txt", data: "two" }]);
say([await sandbox.files.read("a.txt"), (await sandbox.files.list(".")).map(each => each.name).sort()]);
const events = [];
const watch = await sandbox.files.watchDir(".", event => events.push(event.name));
await sandbox.files.write("c.txt", "three");
for (let tries = 0; tries < 100 && !events.length; tries++) await new Promise(resolve => setTimeout(resolve, 50));
await watch.stop();
say(events.includes("c.txt"));
say((await sandbox.commands.run("cat b.txt; echo $GIVEN")).stdout);
try {
    await sandbox.commands.run("exit 3");
} catch (error) {
    say([error.name, error.exitCode]);
}
const cat = await sandbox.commands.run("cat", { background: true, stdin: true });
await sandbox.commands.sendStdin(cat.pid, "hello\n");
await sandbox.commands.closeStdin(cat.pid);
say((await cat.wait()).stdout);
say(await (await fetch(await sandbox.downloadUrl("a.txt"))).text());
say((await sandbox.getInfo()).metadata);
await sandbox.pause();
await sandbox.connect();
await sandbox.runCode("kept = 1");
const snapshot = await sandbox.createSnapshot({ name: "of-node" });
const [fork] = await sandbox.fork({ timeoutMs: 60_000 });
const made = await Sandbox.create("of-node");
await made.runCode("kept += 1");
say([(await made.runCode("kept")).text, (await fork.runCode("kept")).text, snapshot.names]);
say([await Sandbox.deleteSnapshot(snapshot.snapshotId), await made.kill(), await fork.kill()]);
say([await sandbox.isRunning(), await sandbox.kill(), await sandbox.isRunning()]);
