#include "base/plain/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <mutex>

#include "base/plain/clock.h"
#include "base/plain/text.h"

namespace evenkeel::log {
namespace {

constexpr const char* kClearLine = "\r\033[K";
constexpr size_t kLongestLine = 2000;

/// The progress text in the last line of the terminal; empty if there is none.
struct Screen {
  std::mutex lock;  // also protects the text of the log file
  std::string line;
  const bool terminal = isatty(STDERR_FILENO) == 1;
};

Screen& screen() {
  static Screen instance;
  return instance;
}

spdlog::logger& logger() {
  static auto instance = [] {
    auto created =
        std::make_shared<spdlog::logger>("evenkeel", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    created->set_pattern("%H:%M:%S %^%-7l%$ %v");
    created->set_level(spdlog::level::info);
    created->flush_on(spdlog::level::trace);
    return created;
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

/// The state of the log file, if there is one.
struct LogFile {
  bool wanted = false;
  std::string pending;  // lines that are stored until the file is open
  std::ofstream file;
};

LogFile& log_file() {
  static LogFile instance;
  return instance;
}

std::string_view word_of(Level level) {
  if (level == Level::kInfo) return "info   ";
  return level == Level::kWarning ? "warning" : "error  ";
}

/// Writes a line to the log file, or stores it until the file is open. REQUIRES the screen's lock.
void append(Level level, std::string_view line) {
  auto& state = log_file();
  if (!state.wanted) return;
  const auto text = concat(utc_now(), ' ', word_of(level), ' ', shown(line, kLongestLine), '\n');
  if (!state.file.is_open())
    state.pending += text;
  else
    state.file.clear(), state.file << text << std::flush;  // a full disk may have room again
}

}  // namespace

void set_level(Level level) { logger().set_level(native(level)); }

void write(Level level, std::string_view line) {
  const std::lock_guard guard(screen().lock);
  append(level, line);
  if (!logger().should_log(native(level))) return;
  const bool redraw = screen().terminal && !screen().line.empty();
  if (redraw) draw("");
  const std::string fit = shown(line, kLongestLine);
  logger().log(native(level), spdlog::string_view_t(fit.data(), fit.size()));
  if (redraw) draw(screen().line);
}

File::File() {
  const std::lock_guard guard(screen().lock);
  log_file().wanted = true;
}

File::~File() {
  const std::lock_guard guard(screen().lock);
  log_file() = {};
}

void File::open(const std::filesystem::path& file) {
  const std::lock_guard guard(screen().lock);
  auto& state = log_file();
  state.file.open(file, std::ios::app);
  state.wanted = state.file.is_open();  // otherwise later lines would stay in memory
  state.file << state.pending << std::flush;
  state.pending.clear();
}

void File::note(Level level, std::string_view line) {
  const std::lock_guard guard(screen().lock);
  append(level, line);
}

Progress::Progress(std::string label, double seconds_between_lines)
    : label_(std::move(label)), interval_(seconds_between_lines) {}

void Progress::update(std::string_view text) {
  const std::string line = shown(concat(label_, " ", text), kLongestLine);
  const double now = seconds_now();
  const std::lock_guard guard(screen().lock);
  if (screen().terminal && logger().should_log(spdlog::level::info)) {
    screen().line = line;
    if (now - drawn_ >= 0.05) draw(line), drawn_ = now;
  }
  pending_ = line;
  if (now - last_ < interval_) return;
  last_ = now;
  flush();
}

/// On a terminal the line is already visible. REQUIRES the screen's lock.
void Progress::flush() {
  if (pending_.empty()) return;
  append(Level::kInfo, pending_);
  if (!screen().terminal && logger().should_log(spdlog::level::info))
    logger().log(spdlog::level::info, spdlog::string_view_t(pending_.data(), pending_.size()));
  pending_.clear();
}

Progress::~Progress() {
  const std::lock_guard guard(screen().lock);
  flush();
  if (!screen().terminal || screen().line.empty()) return;
  draw(screen().line);
  std::fputc('\n', stderr);
  screen().line.clear();
}

}  // namespace evenkeel::log
