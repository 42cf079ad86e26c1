import assert from 'node:assert/strict';
import test from 'node:test';
import { inspect, types } from 'node:util';

// A whole float, which is compared with a tolerance, unlike an integer.
class Float {
  constructor(value) {
    this.value = value;
  }
}

// A large integer, which may be a BigInt.
class Large extends Float {}

READERS.$whole = (data) => new Float(data);
READERS.$large = (data) => new Large(integer(data));

for (const each of CASES) {
  test(each.name, { skip: each.omitted ?? valueless(each) }, async () => {
    const given = each.order.map((name) => (Object.hasOwn(each.inputs, name) ? decode(each.inputs[name], name) : undefined));
    const call = async () => program[each.call](...given);
    if (each.error) await assert.rejects(call, (error) => isA(error, each.error, each.message));
    else equal(await call(), decode(each.expected, 'expected'), each.rel, each.abs);
  });
}

// Why JavaScript does not have the values of a test; false if it has.
function valueless({ inputs, expected }) {
  try {
    decode({ inputs, expected: expected ?? null }, 'test');
    return false;
  } catch (error) {
    return error.message;
  }
}

// Whether a value equals the expected one within the tolerances. The order of keys and of sets does not matter.
function alike(actual, expected, rel, abs) {
  if (actual == null || expected == null) return actual == null && expected == null;
  if (typeof actual === 'bigint' && isSafe(actual)) return actual === expected;
  if (expected instanceof Large) expected = expected.value;
  else if (typeof expected === 'bigint') return actual === expected;
  if (expected instanceof Float) return isNumber(actual) && near(Number(actual), expected.value, rel, abs);
  if (isNumber(actual) && isNumber(expected)) {
    if (isWhole(actual) && isWhole(expected)) return BigInt(actual) === BigInt(expected);
    if (isWhole(expected) && rel == null && abs == null) return false;
    if (isWhole(expected)) rel ??= 0;
    return near(Number(actual), Number(expected), rel, abs);
  }
  if (typeof actual !== 'object' || typeof expected !== 'object') return actual === expected;
  if (isComputed(actual)) return false;
  if (expected instanceof Date) return actual instanceof Date && actual.getTime() === expected.getTime();
  if (expected instanceof Uint8Array || actual instanceof Uint8Array) {
    return expected instanceof Uint8Array && actual instanceof Uint8Array && Buffer.compare(actual, expected) === 0;
  }
  const same = (one, other) => alike(one, other, rel, abs);
  const list = ArrayBuffer.isView(actual) ? Array.from(actual) : actual;
  if (Array.isArray(expected) || Array.isArray(list)) {
    return Array.isArray(expected) && Array.isArray(list) && list.length === expected.length
      && expected.every((item, index) => same(list[index], item));
  }
  if (expected instanceof Set || actual instanceof Set) {
    return expected instanceof Set && actual instanceof Set && paired([...actual], [...expected], same);
  }
  if (types.isMap(actual) !== types.isMap(expected) || kindOf(actual) !== kindOf(expected)) return false;
  return paired(pairsOf(actual), pairsOf(expected), (one, other) => same(one[0], other[0]) && same(one[1], other[1]));
}

function near(actual, expected, rel, abs) {
  if (Number.isNaN(expected) || actual === expected) return Object.is(actual, expected) || actual === expected;
  abs ??= expected === 0 && rel == null ? 1e-12 : 0;
  rel ??= 1e-9;
  const most = Math.max(rel * Math.max(Math.abs(actual), Math.abs(expected)), abs);
  return Number.isFinite(actual) && Number.isFinite(expected) && Math.abs(actual - expected) <= most;
}

function isNumber(value) {
  return typeof value === 'number' || typeof value === 'bigint';
}

function isWhole(value) {
  return typeof value === 'bigint' || Number.isInteger(value);
}

function isSafe(value) {
  return -(2n ** 53n) < value && value < 2n ** 53n;
}

// Whether reading an object again may give something else.
function isComputed(value) {
  if (types.isProxy(value)) return true;
  const names = ArrayBuffer.isView(value) ? [] : Reflect.ownKeys(value).filter((name) => name !== 'stack');
  return names.some((name) => 'get' in (Object.getOwnPropertyDescriptor(value, name) ?? {}));
}

function kindOf(value) {
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || value instanceof Map ? 'Object' : prototype.constructor.name;
}

function pairsOf(value) {
  if (value instanceof Map) return [...value];
  const names = Object.keys(value);
  if (value instanceof Error && !names.includes('message')) names.push('message');
  return names.map((name) => [name, value[name]]);
}

function paired(actual, expected, same) {
  const left = [...actual];
  return actual.length === expected.length && expected.every((item) => {
    const index = left.findIndex((other) => same(other, item));
    if (index >= 0) left.splice(index, 1);
    return index >= 0;
  });
}

// An object of a class with that name.
function instance(name, fields) {
  return Object.assign(new ({ [name]: class {} })[name](), fields);
}

function equal(actual, expected, rel, abs) {
  assert.ok(alike(actual, expected, rel, abs), `expected ${inspect(expected)}, got ${inspect(actual)}`);
}

// Whether an error is an instance of a class with that name.
function isA(error, name, message) {
  if (!(error instanceof Error)) return false;
  const names = [Object.hasOwn(error, 'name') && !/^(Type|Range|Syntax|Reference)?Error$/.test(error.name) ? error.name : ''];
  for (let each = Object.getPrototypeOf(error); each !== Object.prototype; each = Object.getPrototypeOf(each)) {
    names.push(each.constructor.name);
  }
  return names.includes(name) && error.message.toLowerCase().includes(message.toLowerCase());
}
