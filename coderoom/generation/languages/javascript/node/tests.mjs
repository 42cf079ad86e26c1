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

// They read the content of an object whatever its class says.
const timeOf = Date.prototype.getTime;
const numbersOf = Object.getPrototypeOf(Uint8Array.prototype).values;
const itemsOf = Set.prototype.values;
const pairsIn = Map.prototype.entries;

const BUILT_IN = [Error, TypeError, RangeError, SyntaxError, ReferenceError, EvalError, URIError, AggregateError];

READERS.$whole = (data) => new Float(data);
READERS.$large = (data) => new Large(integer(data));

for (const each of CASES) {
  test(each.name, { skip: each.omitted ?? valueless(each) }, async () => {
    const given = each.order.map((name) => (Object.hasOwn(each.inputs, name) ? decode(each.inputs[name], name) : undefined));
    const last = given.at(-1);
    if (Array.isArray(last) && takesRest(program[each.call], each.order)) given.splice(-1, 1, ...last);
    const call = async () => program[each.call](...given);
    if (each.error) await assert.rejects(call, (error) => isA(error, each.error, each.message));
    else equal(await call(), decode(each.expected, 'expected'), each.rel, each.abs);
  });
}

// Whether the last one of the parameters of a function is a rest parameter: `(...last) {` or `(...last) =>`.
function takesRest(called, names) {
  const gap = '(\\s|//.*\\n|/[*].*?[*]/)*';
  const rest = new RegExp(['[.]{3}', names.at(-1), '[)]', '(=>|{)'].join(gap));
  return called.length < names.length && rest.test(called);
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
  if (typeof actual === 'bigint' && -(2n ** 53n) < actual && actual < 2n ** 53n) return actual === expected;
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
  if (types.isDate(expected) || types.isDate(actual)) {
    return types.isDate(expected) && types.isDate(actual) && timeOf.call(actual) === timeOf.call(expected);
  }
  if (expected instanceof Uint8Array || actual instanceof Uint8Array) {
    return expected instanceof Uint8Array && actual instanceof Uint8Array && Buffer.compare(actual, expected) === 0;
  }
  const same = (one, other) => alike(one, other, rel, abs);
  const list = types.isTypedArray(actual) ? [...numbersOf.call(actual)] : actual;
  if (Array.isArray(expected) || Array.isArray(list)) {
    return Array.isArray(expected) && Array.isArray(list) && list.length === expected.length
      && expected.every((item, index) => same(list[index], item));
  }
  if (types.isSet(expected) || types.isSet(actual)) {
    return types.isSet(expected) && types.isSet(actual) && paired([...itemsOf.call(actual)], [...expected], same);
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

// Whether reading an object again may give something else. Errors have a hidden property for their stack.
function isComputed(value) {
  if (types.isProxy(value)) return true;
  return !ArrayBuffer.isView(value) && Reflect.ownKeys(value).some((name) => {
    const found = Object.getOwnPropertyDescriptor(value, name);
    return 'get' in found && (name !== 'stack' || found.enumerable);
  });
}

function kindOf(value) {
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || types.isMap(value) ? 'Object' : prototype.constructor.name;
}

function pairsOf(value) {
  if (types.isMap(value)) return [...pairsIn.call(value)];
  const names = Object.keys(value);
  if (value instanceof Error && !names.includes('message')) names.push('message');
  return names.map((name) => [name, Object.hasOwn(value, name) ? value[name] : '']);
}

function paired(actual, expected, same) {
  const left = [...actual];
  return actual.length === expected.length && expected.every((item) => {
    const index = left.findIndex((other) => same(other, item));
    if (index >= 0) left.splice(index, 1);
    return index >= 0;
  });
}

function equal(actual, expected, rel, abs) {
  assert.ok(alike(actual, expected, rel, abs), `expected ${inspect(expected)}, got ${inspect(actual)}`);
}

// Whether an error is an instance of a class with that name. Of the built-in classes, only the nearest counts.
function isA(error, name, message) {
  if (!(error instanceof Error)) return false;
  const own = Object.getOwnPropertyDescriptor(error, 'name')?.value ?? '';
  const names = BUILT_IN.some((each) => each.name === own) ? [] : [own];
  let each = error;
  do {
    each = Object.getPrototypeOf(each);
    names.push(each.constructor.name);
  } while (!BUILT_IN.includes(each.constructor));
  return names.includes(name) && error.message.toLowerCase().includes(message.toLowerCase());
}
