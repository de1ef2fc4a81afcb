// To add a method: its file, and its name here, declared and in the table. Programs that bring their own: add_method().
#include <algorithm>

#include "methods/method.h"

namespace evenkeel {

MethodEntry ub_smoe(), a3smoe(), smoe_llb(), hetlora(), flexlora(), flora(), florist(), fedex_lora(), ffa_lora(),
    fedit(), fed_sb();

namespace {

std::vector<MethodEntry>& table() {
  static std::vector<MethodEntry> rows{ub_smoe(), a3smoe(),     smoe_llb(), hetlora(), flexlora(), flora(),
                                       florist(), fedex_lora(), ffa_lora(), fedit(),   fed_sb()};
  return rows;
}

}  // namespace

std::span<const MethodEntry> methods() { return table(); }

void add_method(const MethodEntry& entry) {
  const auto taken = [&](const MethodEntry& known) { return known.name == entry.name; };
  EK_CHECK(entry.make && entry.write, kInternal, "method ", entry.name, " has no make or no write: use method_entry()");
  EK_CHECK(std::none_of(table().begin(), table().end(), taken), kConfig, "method ", entry.name,
           " is in the table already: choose another name");
  table().push_back(entry);
}

const MethodEntry& find_method(std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto& entry : methods()) {
    if (entry.name == name) return entry;
    known.push_back(entry.name);
  }
  fail(kConfig, "method.name is \"", name, "\", known: ", join(known));
}

}  // namespace evenkeel
