// Finds what a program leaves behind. It remembers the built-in objects before that program is loaded.
import fs from 'node:fs';
import { builtinModules } from 'node:module';

const PAUSE = 20;
const MOST_PAUSES = 10;
// What keeps Node running, by its name there. The output is not among them.
const KINDS = {
  __proto__: null,
  Timeout: 'a timer',
  Immediate: 'a timer',
  ProcessWrap: 'a process',
  TCPServerWrap: 'a server',
  TCPSocketWrap: 'a connection',
  UDPWrap: 'a connection',
  FSEventWrap: 'a watcher of files',
  StatWatcher: 'a watcher of files',
};

const { apply, getOwnPropertyDescriptor, getPrototypeOf, ownKeys } = Reflect;
const { is } = Object;
const { has } = Set.prototype;
const write = String;
const active = process.getActiveResourcesInfo.bind(process);
const wait = globalThis.setTimeout;
const Turn = Promise;

const known = [];
const seen = new Set();
const threads = [];

// Remembers the functions and objects in a built-in object, and those in the classes in it.
function remember(name, object, deep = false) {
  if (seen.has(object)) return;
  seen.add(object);
  const keys = ownKeys(object);
  const fields = keys
    .map((key) => [key, getOwnPropertyDescriptor(object, key)])
    .filter(([, each]) => each.get || isObject(each.value));
  known.push([name, object, fields, new Set(keys)]);
  for (const [key, { value }] of fields) {
    const isClass = typeof value === 'function' && isObject(getOwnPropertyDescriptor(value, 'prototype')?.value);
    if (isObject(value) && (deep || key === 'prototype' || isClass)) remember(within(name, key), value);
  }
}

function isObject(value) {
  return (typeof value === 'object' && value !== null) || typeof value === 'function';
}

function within(name, key) {
  return name ? `${name}.${write(key)}` : write(key);
}

remember('', globalThis, true);
const source = fs.readFileSync(new URL('./program.mjs', import.meta.url), 'utf8');
for (const name of builtinModules) {
  if (source.includes(`"node:${name}"`)) remember(name, (await import(`node:${name}`)).default);
}
for (const [name, object] of known) { // It grows meanwhile.
  if (isObject(getPrototypeOf(object))) remember(`Object.getPrototypeOf(${name})`, getPrototypeOf(object));
}
process.on('worker', (thread) => { threads[threads.length] = thread; });

function changed() {
  for (let index = 0; index < known.length; index++) {
    const [name, object, fields, before] = known[index];
    for (let place = 0; place < fields.length; place++) {
      const [key, was] = fields[place];
      const now = getOwnPropertyDescriptor(object, key);
      if (now !== undefined && is(now.value, was.value) && now.get === was.get && now.set === was.set) continue;
      // Node replaces some getters by their value when they are used.
      const lazy = was.get && now !== undefined && 'value' in now && is(apply(was.get, object, []), now.value);
      if (!lazy) return `another ${within(name, key)} instead of the one of JavaScript`;
    }
    const keys = object === process ? [] : ownKeys(object);
    for (let place = 0; place < keys.length; place++) {
      const own = object === globalThis && typeof keys[place] === 'symbol'; // Parts of Node that load late add some.
      if (!own && !apply(has, before, [keys[place]])) return `a new ${within(name, keys[place])}`;
    }
  }
  return '';
}

// What is left, once timers that are about to end have ended; empty if nothing.
export async function whatIsLeft() {
  for (let pauses = 0; ; pauses++) {
    const names = active();
    let found = '';
    for (let index = 0; index < names.length && !found; index++) found = KINDS[names[index]] ?? '';
    for (let index = 0; index < threads.length && !found; index++) if (threads[index].threadId > 0) found = 'a thread';
    if (!found) return changed() || (process.exitCode ? 'an exit code of its own' : '');
    if (pauses >= MOST_PAUSES) return found;
    await new Turn((resolve) => { wait(resolve, PAUSE); });
  }
}
