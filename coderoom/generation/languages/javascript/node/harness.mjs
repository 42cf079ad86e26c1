// Makes calls, one after the other, and reports their results. It does not know the expected results.
import fs from 'node:fs';
import { NoValue, decode } from './decode.mjs';
import { Encoder, namesOf, opaque, plainText } from './values.mjs';

const MOST_TOLD = 4_000;
const MOST_FRAMES = 16;
const MOST_LINES = 200;

const { apply, getPrototypeOf, getOwnPropertyDescriptor, has } = Reflect;
const { writeSync } = fs;
const write = String;
const bytesFrom = Buffer.from.bind(Buffer);
const on = process.on.bind(process);
const later = setImmediate;
const Turn = Promise;
const folder = new URL('.', import.meta.url).href;
const errors = [Error, TypeError, RangeError, SyntaxError, ReferenceError, EvalError, URIError, AggregateError];
const baseOf = Map.prototype.get.bind(new Map(errors.map((each) => [each.prototype, each.name])));
const request = JSON.parse(fs.readFileSync(new URL('./job.json', import.meta.url), 'utf8'));

const peak = 1024 * Number(/VmPeak:\s+(\d+)/.exec(fs.readFileSync('/proc/self/status', 'utf8'))?.[1] ?? 0);

let job = request.jobs[0];
let told = false;
let late = ''; // What happened after an answer.

// A step before the call threw something. A test cannot expect that.
class StepError {
  constructor(cause) {
    this.cause = cause;
  }
}

function tell(text) {
  if (told) return;
  told = true;
  if (text.length > request.longest) {
    text = `{"value":${opaque('value', `as data it has more than ${request.longest} characters`)}}`;
  }
  let data = bytesFrom(`${text}\0`);
  while (data.length) data = data.subarray(writeSync(request.answer, data));
}

// A base that no expected error has, for errors that the function did not throw.
function tellOfTest(base, message) {
  tell(`{"error":{"types":[],"base":${plainText(base)},"message":${plainText(message)},"trace":[]}}`);
}

function explain(error) {
  if (error instanceof StepError) return explained(error.cause, [], 'StepError');
  const { types, base } = classesOf(error);
  return explained(error, types, base);
}

function explained(error, types, base) {
  const message = plainText(without(messageOf(error)).slice(0, MOST_TOLD));
  return `{"error":{"types":[${types.map(plainText)}],"base":${plainText(base)},"message":${message},"trace":${frames(error)}}}`;
}

function classesOf(error) {
  if (error === null || (typeof error !== 'object' && typeof error !== 'function')) {
    return { types: [], base: error === null ? 'null' : typeof error };
  }
  const types = [];
  let base;
  try {
    for (let each = getPrototypeOf(error), steps = 0; each !== null && steps < 20; each = getPrototypeOf(each), steps++) {
      base = baseOf(each);
      if (base !== undefined) break;
      const called = namesOf(each);
      if (called !== 'anonymous') types[types.length] = called;
    }
    const name = getOwnPropertyDescriptor(error, 'name')?.value;
    if (typeof name === 'string' && name && !types.includes(name)) types.unshift(name.slice(0, 100));
  } catch {
    base = undefined;
  }
  return { types, base: base ?? 'object' };
}

function messageOf(error) {
  try {
    const found = error !== null && typeof error === 'object' && has(error, 'message') ? error.message : error;
    return write(found);
  } catch {
    return 'its text could not be made';
  }
}

function without(text) {
  return text.split(folder).join('').split(folder.slice('file://'.length)).join('');
}

function frames(error) {
  const found = [];
  try {
    const stack = error !== null && typeof error === 'object' ? error.stack : '';
    for (const line of write(stack).slice(0, 100_000).split('\n').slice(0, MOST_LINES)) {
      const parts = /^\s+at (?:async )?(?:(.*?) \()?([^()]*):(\d+):\d+\)?$/.exec(line);
      const place = parts && placeOf(parts[2], Number(parts[3]));
      if (place) found.unshift([place[0], place[1], nameIn(parts[1])]);
    }
  } catch {
    return '[]';
  }
  return `[${found.slice(-MOST_FRAMES).map(([cell, line, name]) => `[${plainText(cell)},${line},${plainText(name)}]`)}]`;
}

function placeOf(file, line) {
  // Omit frames of the harness.
  if (file !== `${folder}program.mjs`) return null;
  const part = request.parts.find(([, first, last]) => first <= line && line <= last);
  return part ? [part[0], line - part[1] + 1] : null;
}

function nameIn(text) {
  if (!text || text === 'eval' || text.startsWith('file:')) return '<module>';
  return text.replace(/^(new|Object\.|Function\.) ?/, '').slice(0, 100);
}

function argumentsOf(given) {
  const names = job.parameters;
  if (names === null) return Object.values(given);
  const unknown = Object.keys(given).find((name) => !names.some((each) => each[0] === name));
  if (unknown !== undefined) throw new NoValue(`${job.function} has no parameter ${unknown}`);
  const last = names.findLastIndex(([name]) => name in given);
  return names.slice(0, last + 1).flatMap(([name, rest]) => (rest ? given[name] : [given[name]]));
}

// The answer with a result, and with the arguments after the call if a property uses them.
function textOf(value, given) {
  try {
    const encoder = new Encoder();
    const result = encoder.encode(value);
    if (given === null) return `{"value":${result}}`;
    const after = Object.keys(given).map((name) => `${plainText(name)}:${encoder.encode(given[name])}`);
    return `{"value":${result},"after":{${after}}}`;
  } catch { // The function itself has not thrown it.
    return `{"value":${opaque('value', 'reading it throws an error')}}`;
  }
}

async function prepare() {
  const program = await import('./program.mjs');
  if (job.function === undefined) return null;
  const look = program.coderoom$;
  let given = {};
  for (const [name, data] of Object.entries(job.inputs)) given[name] = decode(data, name);
  try {
    await perform(job.setup ?? [], look);
    for (const name of Object.keys(given)) given[name] = await withNames(given[name], look);
  } catch (error) {
    throw new StepError(error);
  }
  const found = await binding(job.function, look);
  if (found === null) throw new NoValue(`the function ${job.function} is not defined`);
  return [found, argumentsOf(given), given, look];
}

// The objects of the test by their names, and those that a step has made of a class.
let names = new Map();
let made = new Set();

// A function or a class of the program.
async function binding(name, look) {
  const { value } = await look({}, `[typeof ${name} === 'function' ? ${name} : null]`);
  return value[0];
}

async function find(path, look) {
  const [first, ...rest] = path.split('.');
  let found = names.has(first) ? names.get(first) : await binding(first, look);
  if (found === null && !names.has(first)) throw new ReferenceError(`${first} is not defined`);
  let owner;
  for (const part of rest) [owner, found] = [found, found[part]];
  return [owner, found];
}

function isClass(value) {
  return typeof value === 'function' && /^class\b/.test(Function.prototype.toString.call(value));
}

// Replaces the names in decoded data by what they stand for.
async function withNames(value, look) {
  if (Array.isArray(value)) return Promise.all(value.map((each) => withNames(each, look)));
  if (value === null || typeof value !== 'object' || Object.getPrototypeOf(value) !== Object.prototype) return value;
  if (typeof value.$name === 'string') return (await find(value.$name, look))[1];
  return Object.fromEntries(
    await Promise.all(Object.entries(value).map(async ([key, item]) => [key, await withNames(item, look)])),
  );
}

async function perform(steps, look) {
  let last;
  for (const step of steps) {
    const data = async (each) => withNames(decode(each, 'a step'), look);
    if (step.call !== undefined) {
      const [owner, called] = await find(step.call, look);
      const given = await Promise.all((step.args ?? []).map(data));
      if (isClass(called)) made.add((last = Reflect.construct(called, given)));
      else last = await apply(called, owner, given);
      if (step.name !== undefined) names.set(step.name, last);
    } else if (step.assign !== undefined) {
      const value = await data(step.value ?? null);
      const [first, ...rest] = step.assign.split('.');
      if (step.assign.startsWith('os.environ.')) process.env[rest[1]] = value;
      else if (!rest.length) names.set(first, value);
      else {
        const attribute = rest.pop();
        const [, owner] = await find([first, ...rest].join('.'), look);
        if (!made.has(owner)) throw new TypeError(`${first} was not made by a step, so no step may change it`);
        owner[attribute] = value;
      }
    } else {
      const content = step.bytes === undefined ? step.text ?? '' : Buffer.from(step.bytes, 'base64');
      if (step.file.includes('/')) fs.mkdirSync(step.file.slice(0, step.file.lastIndexOf('/')), { recursive: true });
      fs.writeFileSync(step.file, content);
    }
  }
  return last;
}

on('beforeExit', () => tellOfTest('Unsettled', 'nothing was left to do, and the promise that it returned was not settled'));
on('uncaughtException', (error) => {
  if (told) late = 'an error outside of the calls';
  tellOfTest('Uncaught', `outside of the call: ${without(messageOf(error))}`.slice(0, MOST_TOLD));
});
if (!request.plain) {
  Error.stackTraceLimit = MOST_FRAMES;
  process.argv.length = 1;
}

const kept = []; // The first answer to each job that is a value, and the value.

async function answer(number) {
  let call, value;
  try {
    call = await prepare();
    if (call === null) {
      tell(`{"value":${peak}}`);
      return;
    }
    value = isClass(call[0]) ? Reflect.construct(call[0], call[1]) : await apply(call[0], undefined, call[1]);
    if (job.then) {
      names.set('result', value);
      value = await perform(job.then, call[3]);
    }
  } catch (error) {
    if (error instanceof NoValue) tellOfTest('Call', error.message);
    else tell(explain(error));
    return;
  }
  const after = job.after ? call[2] : null;
  const text = textOf(value, after);
  await new Turn((resolve) => { later(resolve); }); // A promise that nobody handles would end a script.
  kept[number] ??= [text, value, after];
  tell(text);
}

const { jobs, order } = request;
const { chdir, cwd } = process;
const start = cwd();
const whatIsLeft = request.plain ? (await import('./left.mjs')).whatIsLeft : null;
for (let index = 0; index < order.length; index++) {
  job = jobs[order[index]];
  told = false;
  names = new Map();
  made = new Set();
  if (request.plain) {
    fs.mkdirSync(`${start}/${index}`);
    chdir(`${start}/${index}`);
  }
  await answer(order[index]);
}
if (request.plain) {
  const left = await whatIsLeft().catch(() => 'other built-in objects than those of JavaScript');
  for (let number = 0; number < jobs.length; number++) {
    told = false;
    const [text, value, after] = kept[number] ?? [''];
    if (text && textOf(value, after) !== text) tellOfTest('Changed', 'the returned value changes later');
    else tell('');
  }
  told = false;
  tell(left || late ? `{"left":${plainText(left || late)}}` : '');
}
