// Written by `python -m partc.format.native native/src/format`: change the Python structs, not this file.

#pragma once

#include <array>
#include <string_view>

namespace partc::messages {

enum class Party { ANY, CLIENT, DEVICE, SOURCE, METER };
enum class When { EVER, FIRST, BACK, AWAITED, OWN, ASKED, CHANGE, PREPARED, GIVEN, WANTED, KNOWN };
/// Who may send a kind of message to whom.
struct Right {
  std::string_view kind;
  Party sender, receiver;
  When when;
};

inline constexpr std::array<Right, 43> RIGHTS{{
    {"hello", Party::ANY, Party::ANY, When::FIRST},
    {"welcome", Party::ANY, Party::ANY, When::BACK},
    {"refuse", Party::ANY, Party::ANY, When::BACK},
    {"data", Party::DEVICE, Party::DEVICE, When::AWAITED},
    {"ack", Party::DEVICE, Party::DEVICE, When::BACK},
    {"ready", Party::DEVICE, Party::SOURCE, When::OWN},
    {"unready", Party::DEVICE, Party::SOURCE, When::OWN},
    {"addresses", Party::SOURCE, Party::DEVICE, When::EVER},
    {"close", Party::SOURCE, Party::DEVICE, When::EVER},
    {"fail", Party::DEVICE, Party::SOURCE, When::EVER},
    {"timings", Party::DEVICE, Party::SOURCE, When::OWN},
    {"crossed", Party::DEVICE, Party::SOURCE, When::OWN},
    {"ping", Party::SOURCE, Party::DEVICE, When::EVER},
    {"ping", Party::CLIENT, Party::SOURCE, When::EVER},
    {"ping", Party::DEVICE, Party::DEVICE, When::BACK},
    {"pong", Party::DEVICE, Party::DEVICE, When::ASKED},
    {"pong", Party::SOURCE, Party::CLIENT, When::ASKED},
    {"shutdown", Party::CLIENT, Party::SOURCE, When::EVER},
    {"shutdown", Party::SOURCE, Party::DEVICE, When::EVER},
    {"prepare", Party::SOURCE, Party::DEVICE, When::EVER},
    {"prepared", Party::DEVICE, Party::SOURCE, When::CHANGE},
    {"commit", Party::SOURCE, Party::DEVICE, When::PREPARED},
    {"abort", Party::SOURCE, Party::DEVICE, When::EVER},
    {"want", Party::DEVICE, Party::DEVICE, When::GIVEN},
    {"rows", Party::DEVICE, Party::DEVICE, When::WANTED},
    {"submit", Party::CLIENT, Party::SOURCE, When::EVER},
    {"token", Party::SOURCE, Party::CLIENT, When::ASKED},
    {"stats", Party::SOURCE, Party::CLIENT, When::ASKED},
    {"trace", Party::SOURCE, Party::CLIENT, When::ASKED},
    {"result", Party::SOURCE, Party::CLIENT, When::ASKED},
    {"error", Party::SOURCE, Party::CLIENT, When::ASKED},
    {"cancel", Party::CLIENT, Party::SOURCE, When::KNOWN},
    {"place", Party::CLIENT, Party::SOURCE, When::EVER},
    {"placed", Party::SOURCE, Party::CLIENT, When::ASKED},
    {"resume", Party::CLIENT, Party::SOURCE, When::KNOWN},
    {"measure", Party::CLIENT, Party::METER, When::EVER},
    {"measured", Party::METER, Party::CLIENT, When::ASKED},
    {"join", Party::CLIENT, Party::METER, When::EVER},
    {"joined", Party::METER, Party::CLIENT, When::ASKED},
    {"watch", Party::CLIENT, Party::SOURCE, When::EVER},
    {"sense", Party::SOURCE, Party::DEVICE, When::EVER},
    {"sensed", Party::DEVICE, Party::SOURCE, When::OWN},
    {"status", Party::SOURCE, Party::CLIENT, When::ASKED},
}};

}  // namespace partc::messages
