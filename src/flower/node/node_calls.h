/// \file  Sends a node's HTTP calls: it signs each call, retries while the server is unreachable, and turns final
/// errors into exceptions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flower/format/keys.h"
#include "flower/http/http_client.h"
#include "flower/node/node_options.h"

namespace evenkeel::flower {

/// Flower's error code for a call about a run that is over.
inline constexpr int kRunNotRunning = 2007;

/// Holds a node's key and its connections. call() may run on several threads, each with a connection of its own.
/// headers() and sleep() may be called by any thread. within() must not run at the same time as other functions, except
/// headers().
class NodeCalls {
 public:
  /// Reads the key file. \throws kConfig without a CA file, unless `insecure` is set, or when `connections` is not in 1
  /// to 64; as Key::load()
  explicit NodeCalls(const NodeOptions& options);

  size_t connections() const { return clients_.size(); }
  SignedHeaders headers() { return signer_.headers(); }
  PublicKey public_key() const { return signer_.public_key(); }

  /// Posts `head` followed by `pieces` as the body, and returns the first final answer. Retries without limit after
  /// temporary errors (Answer::passing()). After joined(), it also retries when the server refused the time stamp: a
  /// wrong clock is expected to be corrected. Without TLS a refusal may come from damage on the way, so it is final
  /// only the third time.
  /// \param connection  index of the connection
  /// \param tries       receives the number of attempts
  /// \throws Stopped when NodeOptions::stop returns true; kConfig before joined() when only the server speaks TLS
  Answer call(std::string_view path, std::string_view head, std::span<const std::string_view> pieces = {},
              size_t connection = 0, int* tries = nullptr);
  /// Reports that the server has accepted this node.
  void joined() { joined_ = true; }
  /// Returns for how many seconds the server has not answered; 0 if it answered the last attempt of a call. Any thread
  /// may ask.
  double silent_s() const;
  /// Waits for this many seconds. \throws Stopped when NodeOptions::stop returns true
  void sleep(double seconds) const;
  /// Runs work() with a time limit. Meanwhile NodeOptions::stop is ignored. Returns true if work() returned, false if
  /// the time limit ended it.
  bool within(double seconds, const std::function<void()>& work);

  /// Throws the exception for an answer other than 200: RunOver for 403/2007, otherwise Error of kind kConfig.
  [[noreturn]] void give_up(const Answer& answer, std::string_view path) const;

 private:
  void note_answer(bool answered);

  const Endpoint server_;
  std::function<bool()> stop_;
  Signer signer_;
  std::vector<HttpClient> clients_{};
  std::atomic<bool> joined_ = false;
  std::atomic<int64_t> silent_since_ms_ = 0;  // steady clock; 0: it answers
};

}  // namespace evenkeel::flower
