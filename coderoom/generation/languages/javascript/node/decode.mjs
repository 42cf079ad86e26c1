// Converts tagged data to values, in Node and in written tests.
const { keys, fromEntries } = Object;
const { isArray } = Array;
const bytesFrom = Buffer.from.bind(Buffer);

export class NoValue extends Error {}

export function decode(data, place) {
  if (data === null || typeof data !== 'object') return data;
  if (isArray(data)) return data.map((item, index) => decode(item, `${place}[${index}]`));
  const names = keys(data);
  if (names.length === 1 && names[0].startsWith('$')) {
    const read = READERS[names[0]];
    if (read === undefined) throw new NoValue(`${place}: JavaScript has no value for ${names[0]}`);
    return read(data[names[0]], place);
  }
  return fromEntries(names.map((name) => [name, decode(data[name], `${place}.${name}`)]));
}

const items = (data, place) => decode(data, place);
const bytes = (data) => Uint8Array.from(bytesFrom(data, 'base64'));

const integer = (data) => (data.startsWith('-') ? -BigInt(data.slice(1)) : BigInt(data));
const entries = (pairs, place) => pairs.map(([key, item]) => [decode(key, place), decode(item, place)]);

const READERS = {
  __proto__: null,
  $tuple: items,
  $name: (data) => ({ $name: data }),
  $set: (data, place) => new Set(items(data, place)),
  $frozenset: (data, place) => new Set(items(data, place)),
  $dict(pairs, place) {
    const found = entries(pairs, place);
    return found.every(([key]) => typeof key === 'string') ? fromEntries(found) : new Map(found);
  },
  $map: (pairs, place) => new Map(entries(pairs, place)),
  $bytes: bytes,
  $bytearray: bytes,
  $float: (data) => ({ nan: NaN, inf: Infinity, '-inf': -Infinity })[data],
  $int: integer,
  $bigint: integer,
  $datetime: (data) => new Date(data),
  $object: ({ type, fields }, place) => record(type, fields, place),
  $namedtuple: ({ type, fields }, place) => record(type, fields, place),
  $enum: (data, place) =>
    data.mixed === true ? decode(data.value, place) : record(data.type, { name: data.name, value: data.value }, place),
  $array: (data, place) => decode(data.items, place),
};

function record(type, fields, place) {
  const made = new ({ [type]: class {} })[type]();
  for (const [name, item] of isArray(fields) ? fields : Object.entries(fields)) {
    made[name] = decode(item, `${place}.${name}`);
  }
  return made;
}
