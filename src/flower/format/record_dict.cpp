#include "flower/format/record_dict.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

template <typename T>
const T& typed(const Content& content, std::string_view name, std::string_view kind) {
  const Record* record = content.find(name);
  EK_CHECK(record, kData, "a message has no record \"", shown(name), "\"");
  const T* found = std::get_if<T>(record);
  EK_CHECK(found, kData, "record \"", shown(name), "\" is none of ", kind);
  return *found;
}

}  // namespace

std::string_view kind_of(const Value& value) {
  constexpr std::array<std::string_view, 12> kNames = {
      "double",         "int64",         "uint64",         "bool",         "string",         "bytes",
      "list of double", "list of int64", "list of uint64", "list of bool", "list of string", "list of bytes"};
  return kNames.at(value.index());
}

Items::Items(std::initializer_list<Entry> entries) {
  for (const auto& [name, value] : entries) set(name, value);
}

void Items::set(std::string name, Value value) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.first == name; });
  if (found != entries_.end())
    found->second = std::move(value);
  else
    add(std::move(name), std::move(value));
}

void Items::add(std::string name, Value value) { entries_.emplace_back(std::move(name), std::move(value)); }

const Value* Items::find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.first == name; });
  return found == entries_.end() ? nullptr : &found->second;
}

void Content::add(std::string name, Record record) {
  EK_CHECK(!has(name), kData, "a message has two records \"", shown(name), "\"");
  records_.emplace_back(std::move(name), std::move(record));
}

const Record* Content::find(std::string_view name) const {
  const auto found = std::find_if(records_.begin(), records_.end(), [&](const auto& r) { return r.first == name; });
  return found == records_.end() ? nullptr : &found->second;
}

const Config& Content::config(std::string_view name) const { return typed<Config>(*this, name, "configuration"); }
const Metrics& Content::metrics(std::string_view name) const { return typed<Metrics>(*this, name, "metrics"); }
const Arrays& Content::arrays(std::string_view name) const { return typed<Arrays>(*this, name, "arrays"); }

std::vector<ArrayHead> Content::heads() const {
  std::vector<ArrayHead> heads;
  for (const auto& [name, record] : records_)
    if (const auto* arrays = std::get_if<Arrays>(&record))
      heads.insert(heads.end(), arrays->heads.begin(), arrays->heads.end());
  return heads;
}

}  // namespace evenkeel::flower
