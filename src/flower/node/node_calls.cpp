#include "flower/node/node_calls.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "base/plain/clock.h"
#include "base/plain/log.h"

namespace evenkeel::flower {
namespace {

using NodeClock = std::chrono::steady_clock;

constexpr double kLongestPause = 20;
constexpr int kPlainTries = 3;  // of a call that is refused, without TLS

int64_t steady_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(NodeClock::now().time_since_epoch()).count();
}

std::string clock_word(const Answer& answer) {
  if (!answer.date) return "";
  const double ahead = now_seconds() - *answer.date;
  if (std::abs(ahead) < 4) return "";
  return concat("; this machine's clock is ", std::llround(std::abs(ahead)), " s ", ahead > 0 ? "ahead of" : "behind",
                " the server's");
}

/// Returns true if the server refused the time stamp of a call. Flower's SuperLink gives one reason for all refusals of
/// a signature. There the clocks tell: it accepts time stamps from 305 s ago to 5 s ahead.
bool is_of_clock(const Answer& answer) {
  if (answer.status != 401) return false;
  const double ahead = answer.date ? now_seconds() - *answer.date : 0;
  return answer.detail.find("a time stamp of") != std::string::npos || ahead > 5 || ahead < -304;
}

/// Returns true if an answer may be the result of damage to the call or the answer, which only a connection without TLS
/// lets through. 412 (registration) and 429 (too many calls) say what nothing else says.
bool may_be_damage(const Answer& answer) {
  return !answer.ok() && !answer.passing() && answer.status != 412 && answer.status != 429;
}

std::string described(const Answer& answer) {
  if (answer.status == 0) return answer.detail;  // no answer was received
  return concat(answer.status, answer.code ? concat("/", answer.code) : "", answer.detail.empty() ? "" : ": ",
                answer.detail);
}

}  // namespace

NodeCalls::NodeCalls(const NodeOptions& options)
    : server_(options.server), stop_(options.stop), signer_(Key::load(options.key_file)) {
  EK_CHECK(server_.ca_file || server_.insecure, kConfig,
           "node: neither an authority's certificate nor \"insecure\" is ",
           "given: without TLS everything travels in the clear");
  EK_CHECK(options.connections >= 1 && options.connections <= 64, kConfig, "node: connections is ", options.connections,
           ", allowed: 1 to 64");
  for (int i = 0; i < options.connections; ++i)
    clients_.emplace_back(server_, options.call_timeout_s, options.limits.chunk + (size_t{64} << 10));
}

Answer NodeCalls::call(std::string_view path, std::string_view head, std::span<const std::string_view> pieces,
                       size_t connection, int* tries) {
  const auto start = NodeClock::now();
  double pause = 0.1, last_warning = 0;
  int refusals = 0;
  for (int count = 1;; ++count) {
    if (tries) *tries = count;
    Answer answer = clients_[connection].post(path, headers(), head, pieces);
    note_answer(!answer.passing());
    EK_CHECK(joined_ || !answer.needs_tls, kConfig, server_.text(), ": ", answer.detail);
    const bool refused_time = joined_ && is_of_clock(answer);
    if (stop_() && !answer.ok()) throw Stopped();  // another try may take as long as the time-out
    if (!server_.ca_file && may_be_damage(answer) && ++refusals < kPlainTries) continue;
    if (!answer.passing() && !refused_time) {
      if (last_warning > 0) log::info("[node] ", server_.text(), " answers again");
      return answer;
    }
    if (count == 1) continue;  // the first failure is often just a closed idle connection
    const double silent = seconds_since(start);
    if (last_warning == 0 || silent - last_warning > 60) {
      log::warning("[node] ", server_.text(), path, ": ", described(answer), refused_time ? clock_word(answer) : "",
                   "; trying again");
      last_warning = std::max(silent, 1e-9);
    }
    sleep(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

void NodeCalls::note_answer(bool answered) {
  int64_t answers = 0;
  if (answered)
    silent_since_ms_ = 0;
  else
    silent_since_ms_.compare_exchange_strong(answers, steady_ms());
}

double NodeCalls::silent_s() const {
  const int64_t since = silent_since_ms_;
  return since == 0 ? 0 : static_cast<double>(steady_ms() - since) / 1000;
}

void NodeCalls::sleep(double seconds) const {
  const auto end = NodeClock::now() + std::chrono::duration<double>(seconds);
  do {
    if (stop_()) throw Stopped();
    const std::chrono::duration<double> left = end - NodeClock::now();
    std::this_thread::sleep_for(std::min(left, std::chrono::duration<double>(0.1)));
  } while (NodeClock::now() < end);
}

bool NodeCalls::within(double seconds, const std::function<void()>& work) {
  const auto end = NodeClock::now() + std::chrono::duration<double>(seconds);
  const auto stop = std::exchange(stop_, [end] { return NodeClock::now() > end; });
  bool done = true;
  try {
    work();
  } catch (const Stopped&) {
    done = false;
  }
  stop_ = stop;
  return done;
}

void NodeCalls::give_up(const Answer& answer, std::string_view path) const {
  if (answer.status == 403 && answer.code == kRunNotRunning) throw RunOver();
  if (answer.status == 401)
    fail(kConfig, server_.text(), " does not accept this node (", described(answer), "): its key ",
         public_key().fingerprint(), " is not known there, or the clocks differ by more than 5 s", clock_word(answer));
  fail(kConfig, server_.text(), path, " was refused: ", described(answer));
}

}  // namespace evenkeel::flower
