#include "flower/server/allow_list_watch.h"

#include <utility>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/log.h"

namespace evenkeel::flower {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;  // as read_allow_list()

}  // namespace

std::optional<std::vector<AllowedKey>> AllowListWatch::look() {
  try {
    auto text = read_file(file_, kMostBytes);
    if (std::exchange(seen_, text) != text || taken_ == text) return {};
    taken_ = std::move(text);
    auto keys = parse_allow_list(*taken_, file_.string());
    warned_.clear();
    return keys;
  } catch (const Error& error) {
    warn(error.what());
    return {};
  }
}

void AllowListWatch::warn(const std::string& why) {
  if (std::exchange(warned_, why) != why)
    log::warning("[serve] ", why, ": the list that was read before stays in force");
}

}  // namespace evenkeel::flower
