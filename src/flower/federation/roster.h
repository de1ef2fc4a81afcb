/// \file  Which node is which client, and what was agreed with it. Kept in the run's folder, so that a server that died
/// goes on with the clients it had.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "flower/server/coordinator.h"

namespace evenkeel {

/// A client of a run that nodes play.
struct Member {
  int64_t client = 0;
  std::string key;   ///< roster_key() of its node
  std::string name;  ///< as the grid calls it
  double budget = 1;
  int64_t examples = 0;
  int64_t test_rows = 0;
  std::string program;  ///< its version, as it says

  void visit(auto& field) {  // base/format/record.h
    field("client", client, 0);
    field("key", key);
    field("name", name);
    field("budget", budget);
    field("examples", examples, 0);
    field.optional("test_rows", test_rows);
    field("program", program);
  }
};

/// What a node is known by from one life to the next: its key where the grid tells, else its number.
std::string roster_key(const wire::NodeInfo& node);

class Roster {
 public:
  /// \param file  sealed (base/plain/sealed.h); read when it is there, made with a new run's name when not.
  /// \throws kCheckpoint when it is damaged
  explicit Roster(std::filesystem::path file);

  const std::string& run() const { return run_; }  ///< names the run, drawn once
  const std::map<int64_t, Member>& members() const { return members_; }
  /// The client that the node plays; null when none.
  const Member* member(const wire::NodeInfo& node) const;
  /// Written down when it returns. \throws kInternal when the client has another node.
  void add(Member member);

 private:
  void load();
  void save() const;

  std::filesystem::path file_;
  std::string run_;
  std::map<int64_t, Member> members_;  // by client
};

}  // namespace evenkeel
