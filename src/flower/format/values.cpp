#include <fleet.pb.h>

#include <type_traits>
#include <unordered_set>

#include "flower/format/calls.h"
#include "flower/format/protobuf.h"

namespace evenkeel::flower {
namespace {

template <typename T, typename List>
void fill(const std::vector<T>& from, List& to) {
  for (const auto& value : from) {
    if constexpr (std::is_same_v<T, Bytes>)
      to.add_values(value.data);
    else
      to.add_values(value);
  }
}

struct ToWire {
  fleet::Value& to;
  void operator()(double value) const { to.set_number(value); }
  void operator()(int64_t value) const { to.set_sint(value); }
  void operator()(uint64_t value) const { to.set_uint(value); }
  void operator()(bool value) const { to.set_flag(value); }
  void operator()(const std::string& value) const { to.set_text(value); }
  void operator()(const Bytes& value) const { to.set_blob(value.data); }
  void operator()(const std::vector<double>& values) const { fill(values, *to.mutable_numbers()); }
  void operator()(const std::vector<int64_t>& values) const { fill(values, *to.mutable_sints()); }
  void operator()(const std::vector<uint64_t>& values) const { fill(values, *to.mutable_uints()); }
  void operator()(const std::vector<bool>& values) const { fill(values, *to.mutable_flags()); }
  void operator()(const std::vector<std::string>& values) const { fill(values, *to.mutable_texts()); }
  void operator()(const std::vector<Bytes>& values) const { fill(values, *to.mutable_blobs()); }
};

template <typename T, typename List>
std::vector<T> list_of(const List& list) {
  if constexpr (std::is_same_v<T, Bytes>) {
    std::vector<Bytes> values;
    for (const auto& value : list.values()) values.push_back({value});
    return values;
  } else {
    return {list.values().begin(), list.values().end()};
  }
}

Value from_wire(const fleet::Value& from, std::string_view key) {
  switch (from.value_case()) {
    case fleet::Value::kNumber:
      return from.number();
    case fleet::Value::kSint:
      return int64_t{from.sint()};
    case fleet::Value::kUint:
      return uint64_t{from.uint()};
    case fleet::Value::kFlag:
      return from.flag();
    case fleet::Value::kText:
      return from.text();
    case fleet::Value::kBlob:
      return Bytes{from.blob()};
    case fleet::Value::kNumbers:
      return list_of<double>(from.numbers());
    case fleet::Value::kSints:
      return list_of<int64_t>(from.sints());
    case fleet::Value::kUints:
      return list_of<uint64_t>(from.uints());
    case fleet::Value::kFlags:
      return list_of<bool>(from.flags());
    case fleet::Value::kTexts:
      return list_of<std::string>(from.texts());
    case fleet::Value::kBlobs:
      return list_of<Bytes>(from.blobs());
    case fleet::Value::VALUE_NOT_SET:
      break;
  }
  fail(kData, "\"", key, "\" in a record has no value of a kind that is known");
}

std::string encode_items(const Items& record) {
  fleet::Items to;
  for (const auto& [name, value] : record.entries()) {
    auto& item = *to.add_items();
    item.set_key(name);
    std::visit(ToWire{*item.mutable_value()}, value);
  }
  return bytes_of(to);
}

}  // namespace

std::string encode(const Config& record) { return encode_items(record); }

std::string encode(const Metrics& record) {
  for (const auto& [name, value] : record.entries()) {
    const bool number = std::holds_alternative<double>(value) || std::holds_alternative<int64_t>(value) ||
                        std::holds_alternative<uint64_t>(value) || std::holds_alternative<std::vector<double>>(value) ||
                        std::holds_alternative<std::vector<int64_t>>(value) ||
                        std::holds_alternative<std::vector<uint64_t>>(value);
    EK_CHECK(number, kData, "metric \"", name, "\" is of kind ", kind_of(value),
             ", allowed: numbers and lists of them");
  }
  return encode_items(record);
}

Items decode_items(std::string_view body) {
  Items to;
  std::unordered_set<std::string_view> seen;
  const auto from = parsed<fleet::Items>(body, "record of values");
  for (const auto& item : from.items()) {
    EK_CHECK(seen.insert(item.key()).second, kData, "a record names \"", item.key(), "\" twice");
    to.add(item.key(), from_wire(item.value(), item.key()));
  }
  return to;
}

}  // namespace evenkeel::flower
