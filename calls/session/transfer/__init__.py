"""Transfers of a call to a target of its agent: by REFER, or by a child call that is bridged with it."""
