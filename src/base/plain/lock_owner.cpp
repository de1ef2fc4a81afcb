#include "base/plain/lock_owner.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <vector>

#include "base/plain/clock.h"
#include "base/plain/json.h"
#include "base/plain/text.h"

namespace evenkeel {
namespace {

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string pid_namespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

/// State and start time of a process. Both are empty when the system does not tell.
struct ProcessEntry {
  std::string state, started;
};

/// Reads /proc/PID/stat. The name of the program, in brackets, may hold blanks and brackets.
ProcessEntry entry_of(int64_t process) {
  constexpr size_t kStarted = 19;  // field 22; the fields after the name begin with field 3
  const auto line = first_line(concat("/proc/", process, "/stat"));
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream in(line.substr(end + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(in), {}};
  return fields.size() > kStarted ? ProcessEntry{fields[0], fields[kStarted]} : ProcessEntry{};
}

bool exists(int64_t process) { return ::kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM; }

/// Returns true if a host name says which machine it is. Many machines call themselves localhost.
bool is_telling(std::string_view host) { return !host.empty() && !host.starts_with("localhost"); }

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

LockOwner LockOwner::of_this_process(std::string note) {
  return {.host = host_name(),
          .process = ::getpid(),
          .started = entry_of(::getpid()).started,
          .boot = first_line("/proc/sys/kernel/random/boot_id"),
          .pids = pid_namespace(),
          .since = utc_now(),
          .note = std::move(note)};
}

std::optional<LockOwner> LockOwner::read(std::string_view text) try {
  const auto json = parse_json(text.substr(0, text.find('\n')), "a lock", kData, {.depth = 2, .values = 20});
  const JsonView view(json, "a lock");
  return LockOwner{.host = view.at("host").string(),
                   .process = view.at("process").integer(1, std::numeric_limits<pid_t>::max()),
                   .started = view.at("started").string(),
                   .boot = view.at("boot").string(),
                   .pids = view.at("pids").string(),
                   .since = view.at("since").string(),
                   .note = view.at("note").string(),
                   .by_system = view.at("by_system").flag()};
} catch (const Error&) {
  return std::nullopt;
}

std::string LockOwner::text() const {
  const OrderedJson json = {{"host", host}, {"process", process}, {"started", started}, {"boot", boot},
                            {"pids", pids}, {"since", since},     {"note", note},       {"by_system", by_system}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + '\n';
}

std::string LockOwner::name() const {
  if (process == 0) return "another process";
  return concat("process ", process, " on ", host.empty() ? "this machine" : shown(host), " since ", shown(since));
}

Running is_running(const LockOwner& owner) {
  const auto here = LockOwner::of_this_process({});
  if (owner.host != here.host) return Running::kUnknown;
  if (owner.boot != here.boot) return is_telling(owner.host) ? Running::kNo : Running::kUnknown;
  if (owner.pids != here.pids) return Running::kUnknown;
  if (!exists(owner.process)) return Running::kNo;
  const auto entry = entry_of(owner.process);
  const bool ended = entry.state == "Z" || entry.state == "X";
  return ended || (!entry.started.empty() && entry.started != owner.started) ? Running::kNo : Running::kYes;
}

}  // namespace evenkeel
