#include "base/system/events.h"

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <mutex>

#include "base/plain/files.h"

namespace evenkeel::events {
namespace {

constexpr std::chrono::milliseconds kBetweenProgress{100};

struct EventStream {
  std::mutex lock;
  bool on = false, started = false;
  std::string command{};
  std::chrono::steady_clock::time_point next_progress{};
};

EventStream& stream() {
  static EventStream instance;
  return instance;
}

/// Writes an event. REQUIRES the stream's lock, as does write_start().
void write_line(std::string_view name, const OrderedJson& fields) {
  OrderedJson line{{"event", name}};
  line.update(fields);
  std::cout << line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << std::endl;
}

void write_start(const OrderedJson& fields) {
  if (stream().started) return;
  stream().started = true;
  OrderedJson line{{"version", kVersion}, {"program", version()}, {"command", stream().command}, {"pid", ::getpid()}};
  line.update(fields);
  write_line("start", line);
}

}  // namespace

void begin(std::string_view command) {
  const std::lock_guard guard(stream().lock);
  stream().on = true;
  stream().command = command;
}

void leave_off() {
  const std::lock_guard guard(stream().lock);
  stream().on = false;
}

bool wanted() {
  const std::lock_guard guard(stream().lock);
  return stream().on;
}

void start(const OrderedJson& fields) {
  const std::lock_guard guard(stream().lock);
  if (stream().on) write_start(fields);
}

void write(std::string_view name, const OrderedJson& fields) {
  const std::lock_guard guard(stream().lock);
  if (!stream().on) return;
  write_start(OrderedJson::object());
  write_line(name, fields);
}

void write_last(std::string_view name, const OrderedJson& fields) noexcept {
  try {
    write(name, fields);
  } catch (const std::exception&) {  // the exit code reports the failure
  }
}

bool take_progress_turn() {
  const std::lock_guard guard(stream().lock);
  const auto now = std::chrono::steady_clock::now();
  if (!stream().on || now < stream().next_progress) return false;
  stream().next_progress = now + kBetweenProgress;
  return true;
}

}  // namespace evenkeel::events
