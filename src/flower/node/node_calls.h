/// \file  A node's calls: signed, tried again for as long as the server is away, and what their refusals mean.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flower/format/keys.h"
#include "flower/http/http_client.h"
#include "flower/node/node_options.h"

namespace evenkeel::wire {

/// The run of a call is over.
inline constexpr int kRunNotRunning = 2007;

/// For one thread, but for call(), which each connection has one thread for at a time.
class NodeCalls {
 public:
  /// Reads the key. \throws kConfig for a server that is neither known by its certificate nor said to be insecure.
  explicit NodeCalls(const NodeOptions& options);

  size_t connections() const { return clients_.size(); }
  SignedHeaders headers() { return signer_.headers(); }
  PublicKey public_key() const { return signer_.public_key(); }

  /// An answer that is no passing trouble. \param tries  how many calls it took \throws Stopped
  Answer call(std::string_view path, std::string_view head, std::span<const std::string_view> pieces = {},
              size_t connection = 0, int* tries = nullptr);
  /// \throws Stopped
  void sleep(double seconds) const;
  /// Runs `work` with a time instead of NodeOptions::stop; false when that was over before.
  bool within(double seconds, const std::function<void()>& work);

  /// \throws what an answer other than 200 comes to: RunOver, or kConfig
  [[noreturn]] void give_up(const Answer& answer, std::string_view path) const;

 private:
  const Endpoint server_;
  std::function<bool()> stop_;
  Signer signer_;
  std::vector<HttpClient> clients_{};
};

}  // namespace evenkeel::wire
