/// \file  Stores which node acts as which client, and the terms that the node accepted. The file is in the run folder,
/// so a restarted server continues with the same clients.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "flower/server/coordinator.h"

namespace evenkeel::flower {

/// One client of a run and its node.
struct Member {
  int64_t client = 0;
  std::string key;   ///< roster_key() of the node
  std::string name;  ///< the node's name in the grid
  /// The budget beta_c, above 0, at most 1.
  double budget = 1;
  /// The number of training rows |D_c|.
  int64_t examples = 0;
  /// The number of the client's own test rows; 0 if its node gives no scores of them.
  int64_t test_rows = 0;
  std::string program;  ///< version of the node's program, as the node reports it
  /// Why the node gives no scores of test rows that it has; empty if it gives them or has none.
  std::string no_scores{};

  void visit(auto& field) {  // base/format/record.h
    field("client", client, 0);
    field("key", key);
    field("name", name);
    field("budget", budget);
    field("examples", examples, 0);
    field.optional("test_rows", test_rows);
    field("program", program);
    field.optional("no_scores", no_scores);
  }
};

/// Returns the name under which a node is recognised after a restart: the fingerprint of its key, or "node ID" if the
/// grid knows no key.
std::string roster_key(const NodeInfo& node);

/// Maps clients to nodes and stores the mapping in a file. Threads: one.
class Roster {
 public:
  /// Reads `file`. If there is none, makes one with a new random run name. The file is sealed (base/plain/sealed.h).
  /// \throws kCheckpoint when it is damaged
  explicit Roster(std::filesystem::path file);

  const std::string& run() const { return run_; }  ///< random name of the run: 16 hexadecimal digits
  /// Returns all members, by client.
  const std::map<int64_t, Member>& members() const { return members_; }
  /// Returns the member that `node` acts as; null if there is none.
  const Member* member(const NodeInfo& node) const;
  /// Adds or replaces a member and saves the file before it returns. \throws kInternal when the client has another
  /// node.
  void add(Member member);

 private:
  void load();
  void save() const;

  std::filesystem::path file_;
  std::string run_;
  std::map<int64_t, Member> members_;  // by client
};

}  // namespace evenkeel::flower
