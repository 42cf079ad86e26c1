// Converts values to tagged data as JSON text. It runs in the process of the code under test, so its output is untrusted.
// It keeps references to the built-ins that it needs before that code is loaded, since the code may change them.
import { Buffer } from 'node:buffer';
import { types } from 'node:util';

const MOST_ITEMS = 50_000;
const MOST_CHARACTERS = 400_000;
const DEEPEST = 60;
const MOST_DIGITS = 4_000;
const RETURN_LIST = 'it can be iterated only once; return an array';

const { apply, getPrototypeOf, getOwnPropertyDescriptor, has, ownKeys } = Reflect;
const { keys, is } = Object;
const { isArray, from: listOf } = Array;
const { stringify } = JSON;
const { isInteger } = Number;
const write = String;
const mapEach = Map.prototype.forEach;
const setEach = Set.prototype.forEach;
const toISO = Date.prototype.toISOString;
const slice = String.prototype.slice;
const startsWith = String.prototype.startsWith;
const codePointAt = String.prototype.codePointAt;
const toBase64 = Buffer.prototype.toString;
const bytesFrom = Buffer.from.bind(Buffer);
const plainPrototype = Object.prototype;
const collections = [[isArray, Array.prototype], [types.isSet, Set.prototype], [types.isMap, Map.prototype]];

export class Encoder {
  #items = MOST_ITEMS;
  #characters = MOST_CHARACTERS;
  #above = [];

  encode(value) {
    switch (typeof value) {
      case 'undefined':
        return 'null';
      case 'boolean':
        return value ? 'true' : 'false';
      case 'number':
        return number(value);
      case 'bigint':
        return this.#bigint(value);
      case 'string':
        return this.#text(value);
      case 'symbol':
        return opaque('symbol', 'symbols have no value to compare');
      case 'function':
        return opaque('function', 'functions and classes have no value to compare; return what it computes');
    }
    return value === null ? 'null' : this.#nested(value);
  }

  #nested(value) {
    const above = this.#above;
    for (let index = 0; index < above.length; index++) {
      if (above[index] === value) return opaque(nameOf(value), 'it contains itself');
    }
    if (above.length >= DEEPEST) return opaque(nameOf(value), `it is nested more than ${DEEPEST} levels deep`);
    above[above.length] = value;
    try {
      return this.#object(value);
    } finally {
      above.length -= 1;
    }
  }

  #object(value) {
    if (types.isProxy(value)) return opaque('Proxy', 'its properties may change with each access; return plain data');
    if (isComputed(value)) return opaque(nameOf(value), 'its properties may change with each access; return plain data');
    if (overrides(value)) return opaque(nameOf(value), 'its methods are not those of a plain one; return plain data');
    if (isArray(value)) return this.#list(value.length, (index) => value[index]) ?? this.#tooMany('Array');
    if (types.isSet(value)) return this.#set(value);
    if (types.isMap(value)) return this.#map(value);
    if (types.isDate(value)) return date(value);
    if (types.isUint8Array(value)) return this.#bytes(value);
    if (types.isAnyArrayBuffer(value)) return this.#bytes(new Uint8Array(value));
    if (types.isTypedArray(value)) {
      return this.#list(value.length, (index) => value[index]) ?? this.#tooMany('typed array');
    }
    if (types.isBoxedPrimitive(value)) return opaque(nameOf(value), 'it is an object, which equals nothing else; return a plain value');
    if (types.isPromise(value)) return opaque('Promise', 'it was not awaited');
    if (types.isGeneratorObject(value) || types.isMapIterator(value) || types.isSetIterator(value)) {
      return opaque('iterator', RETURN_LIST);
    }
    if (types.isNativeError(value)) return this.#fields(nameOf(value), value, ['message']);
    const prototype = getPrototypeOf(value);
    if (prototype === null || prototype === plainPrototype) return this.#plain(value);
    const kind = nameOf(value);
    if (typeof value.next === 'function' && typeof value[Symbol.iterator] === 'function') {
      return opaque(kind, RETURN_LIST);
    }
    // The content of other built-in objects is not accessible.
    if (isBuiltIn(kind, prototype)) return opaque(kind, 'it has no tagged form; return plain data');
    return this.#fields(kind, value, []);
  }

  #tooMany(kind) {
    return opaque(kind, `there are more than ${MOST_ITEMS} items in total`);
  }

  #list(count, get) {
    this.#items -= count;
    if (this.#items < 0) return null;
    let text = '[';
    for (let index = 0; index < count; index++) text += (index ? ',' : '') + this.encode(get(index));
    return text + ']';
  }

  #set(value) {
    const found = [];
    apply(setEach, value, [(item) => { found[found.length] = item; }]);
    const told = this.#list(found.length, (index) => found[index]);
    return told === null ? this.#tooMany('Set') : `{"$set":${told}}`;
  }

  #map(value) {
    const found = [];
    apply(mapEach, value, [(item, key) => { found[found.length] = [key, item]; }]);
    return this.#pairs(found.length, (index) => found[index][0], (index) => found[index][1], '$map') ?? this.#tooMany('Map');
  }

  #plain(value) {
    const names = keys(value);
    if (names.some((name) => apply(startsWith, name, ['$']) || !wellFormed(name))) {
      return this.#pairs(names.length, (index) => names[index], (index) => value[names[index]]) ?? this.#tooMany('object');
    }
    this.#items -= names.length;
    if (this.#items < 0) return this.#tooMany('object');
    let text = '{';
    for (let index = 0; index < names.length; index++) {
      text += `${index ? ',' : ''}${this.#text(names[index])}:${this.encode(value[names[index]])}`;
    }
    return text + '}';
  }

  #pairs(count, key, item, tag = '$dict') {
    this.#items -= count;
    if (this.#items < 0) return null;
    let text = '';
    for (let index = 0; index < count; index++) {
      text += `${index ? ',' : ''}[${this.encode(key(index))},${this.encode(item(index))}]`;
    }
    return `{"${tag}":[${text}]}`;
  }

  #fields(kind, value, more) {
    const names = keys(value);
    for (const name of more) if (!names.includes(name)) names[names.length] = name;
    this.#items -= names.length;
    if (this.#items < 0) return this.#tooMany(kind);
    let text = '';
    for (let index = 0; index < names.length; index++) {
      const found = getOwnPropertyDescriptor(value, names[index]); // In a class, a getter could be in its place.
      text += `${index ? ',' : ''}[${plainText(names[index])},${this.encode(found === undefined ? '' : found.value)}]`;
    }
    return `{"$object":{"type":${plainText(kind)},"fields":[${text}]}}`;
  }

  #bigint(value) {
    const digits = write(value);
    this.#characters -= digits.length;
    if (this.#characters < 0) return opaque('bigint', `there are more than ${MOST_CHARACTERS} characters in total`);
    if (digits.length <= MOST_DIGITS) return `{"$bigint":"${digits}"}`;
    return value < 0n ? `{"$bigint":"-0x${(-value).toString(16)}"}` : `{"$bigint":"0x${value.toString(16)}"}`;
  }

  #text(value) {
    this.#characters -= value.length;
    if (this.#characters < 0) return opaque('string', `there are more than ${MOST_CHARACTERS} characters in total`);
    return wellFormed(value) ? quoted(value) : `{"$str":"${base64(halves(value))}"}`;
  }

  #bytes(value) {
    this.#characters -= value.length;
    if (this.#characters < 0) return opaque('bytes', `there are more than ${MOST_CHARACTERS} characters in total`);
    return `{"$bytes":"${base64(bytesFrom(value.buffer, value.byteOffset, value.length))}"}`;
  }
}

export function nameOf(value) {
  try {
    const prototype = getPrototypeOf(value);
    return prototype === null ? 'object' : namesOf(prototype);
  } catch {
    return 'object';
  }
}

// The class name of a prototype.
export function namesOf(prototype) {
  const made = getOwnPropertyDescriptor(prototype, 'constructor')?.value;
  const name = typeof made === 'function' ? getOwnPropertyDescriptor(made, 'name')?.value : undefined;
  return typeof name === 'string' && name ? apply(slice, name, [0, 200]) : 'anonymous';
}

// Any text as JSON, with lone surrogates replaced.
export function plainText(value) {
  return quoted(wellFormed(value) ? value : value.replace(/\p{Surrogate}/gu, '?'));
}

export function opaque(type, why) {
  return `{"$opaque":{"type":${plainText(type)},"why":${plainText(why)}}}`;
}

function quoted(value) {
  return stringify(value);
}

// Whether a property is an accessor.
function isComputed(value) {
  if (types.isTypedArray(value) || (isArray(value) && value.length > MOST_ITEMS)) return false;
  const names = ownKeys(value);
  for (let index = 0; index < names.length; index++) {
    const found = getOwnPropertyDescriptor(value, names[index]);
    const hidden = names[index] === 'stack' && !found?.enumerable; // Of errors.
    if (found !== undefined && !hidden && (found.get !== undefined || found.set !== undefined)) return true;
  }
  return false;
}

// Whether an array, a set or a map has other methods than plain ones, besides its texts.
function overrides(value) {
  for (let kind = 0; kind < collections.length; kind++) {
    const [isOne, base] = collections[kind];
    if (!isOne(value) || (isArray(value) && value.length > MOST_ITEMS)) continue;
    for (let each = value; each !== base; each = getPrototypeOf(each)) {
      if (each === null) return true;
      const names = ownKeys(each);
      for (let index = 0; index < names.length; index++) {
        const name = names[index];
        const harmless = name === 'constructor' || name === 'length' || name === 'toString' || name === 'toLocaleString';
        if (name === 'toJSON' || (!harmless && has(base, name))) return true;
      }
    }
  }
  return false;
}

function isBuiltIn(name, prototype) {
  const found = getOwnPropertyDescriptor(globalThis, name); // Reading all of them in advance would load a lot.
  const made = getOwnPropertyDescriptor(prototype, 'constructor')?.value;
  if (found === undefined || made === undefined) return false;
  return (found.get === undefined ? found.value : apply(found.get, globalThis, [])) === made;
}

function number(value) {
  if (value !== value) return '{"$float":"nan"}';
  if (value === Infinity || value === -Infinity) return `{"$float":"${value > 0 ? 'inf' : '-inf'}"}`;
  if (is(value, -0)) return '-0.0';
  // So that unsafe integers are written with all digits of a float.
  return isInteger(value) && (value > 2 ** 53 || value < -(2 ** 53)) && value < 1e21 && value > -1e21
    ? `${write(value)}.0`
    : write(value);
}

function date(value) {
  try {
    const text = apply(toISO, value, []);
    if (text.length === 24) return `{"$datetime":"${text.slice(0, 23).replace('.000', '')}+00:00"}`;
  } catch {
    return opaque('Date', 'it is an invalid date');
  }
  return opaque('Date', 'its year has more than four digits');
}

function wellFormed(value) {
  for (let index = 0; index < value.length; index++) {
    const code = apply(codePointAt, value, [index]);
    if (code >= 0xd800 && code <= 0xdfff) return false;
    if (code > 0xffff) index++;
  }
  return true;
}

function base64(value) {
  return apply(toBase64, value, ['base64']);
}

// UTF-8 that also encodes lone surrogates.
function halves(value) {
  return Buffer.concat(
    listOf(value, (char) => {
      const code = char.codePointAt(0);
      const half = code >= 0xd800 && code <= 0xdfff;
      return half ? bytesFrom([0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63)]) : bytesFrom(char);
    }),
  );
}

