"""The gate that every file of labelled arrays passes before its data are read: what it claims is not believed.

Refused by name: what is kept in other files, codecs and filters that are not known to give numbers back within bounds,
and shapes, chunks, texts or attributes that claim more than the bytes there are can hold.
"""
