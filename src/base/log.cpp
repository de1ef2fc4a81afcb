#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <mutex>

#include "base/text.h"

namespace evenkeel::log {
namespace {

constexpr const char* kClearLine = "\r\033[K";
constexpr size_t kLongestLine = 2000;

/// What stands in the last line of the terminal; empty when nothing does.
struct Screen {
  std::mutex lock;
  std::string line;
  const bool terminal = isatty(STDERR_FILENO) == 1;
};

Screen& screen() {
  static Screen instance;
  return instance;
}

spdlog::logger& logger() {
  static auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("evenkeel", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%H:%M:%S %^%-7l%$ %v");
    made->set_level(spdlog::level::info);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum native(Level level) {
  switch (level) {
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

void draw(const std::string& line) {
  std::fputs(kClearLine, stderr);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void set_level(Level level) { logger().set_level(native(level)); }

void write(Level level, std::string_view line) {
  if (!logger().should_log(native(level))) return;
  const std::lock_guard guard(screen().lock);
  const bool redraw = screen().terminal && !screen().line.empty();
  if (redraw) draw("");
  const std::string fit = shown(line, kLongestLine);
  logger().log(native(level), spdlog::string_view_t(fit.data(), fit.size()));
  if (redraw) draw(screen().line);
}

Progress::Progress(std::string label, double seconds_between_lines)
    : label_(std::move(label)), interval_(seconds_between_lines) {}

void Progress::update(std::string_view text) {
  if (!logger().should_log(spdlog::level::info)) return;
  const std::string line = shown(concat(label_, " ", text), kLongestLine);
  const double now = seconds_now();
  if (screen().terminal) {
    const std::lock_guard guard(screen().lock);
    screen().line = line;
    if (now - last_ >= 0.05) draw(line), last_ = now;
    return;
  }
  pending_ = line;
  if (now - last_ < interval_) return;
  last_ = now;
  pending_.clear();
  write(Level::kInfo, line);
}

Progress::~Progress() {
  if (!pending_.empty()) write(Level::kInfo, pending_);
  const std::lock_guard guard(screen().lock);
  if (!screen().terminal || screen().line.empty()) return;
  draw(screen().line);
  std::fputc('\n', stderr);
  screen().line.clear();
}

}  // namespace evenkeel::log
